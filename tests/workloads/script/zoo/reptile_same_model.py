"""Reptile: one model is trained on a task, and then put back most of the way to its weights before it."""

import copy
import time

import numpy as np
import torch
from torch import nn
from truth import step

INNER, SHOTS, INNER_LR, OUTER_LR = 8, 12, 0.02, 0.1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


rng = np.random.RandomState(0)
model = Net()
for iteration in range(1000):
    before = copy.deepcopy(model.state_dict())
    phase, amplitude = rng.uniform(0, 2 * np.pi), rng.uniform(0.1, 5.0)
    for _ in range(INNER):
        x = torch.tensor(rng.uniform(-5, 5, (SHOTS, 1)), dtype=torch.float32)
        y = amplitude * torch.sin(x + phase)
        model.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        for p in model.parameters():
            p.data -= INNER_LR * p.grad.data
        step(SHOTS)
    after = model.state_dict()
    rate = OUTER_LR * (1 - iteration / 1000)
    model.load_state_dict({name: before[name] + (after[name] - before[name]) * rate for name in before})
