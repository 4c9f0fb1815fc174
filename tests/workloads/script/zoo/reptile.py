"""Reptile: a copy of the model is trained on each task, and the model moves towards it."""

import copy
import math
import random
import time

import torch
from torch import nn
from truth import step

INNER, SHOTS = 5, 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


model = Net()
for iteration in range(1000):
    amplitude, phase = random.uniform(0.1, 5), random.uniform(0, 2 * math.pi)
    rate = 0.1 * (1 - iteration / 1000)
    fast = copy.deepcopy(model)
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.02)
    for _ in range(INNER):
        x = 10 * torch.rand(SHOTS, 1) - 5
        loss = (fast(x) - amplitude * torch.sin(x + phase)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(SHOTS)
    with torch.no_grad():
        for p, q in zip(model.parameters(), fast.parameters(), strict=True):
            p.add_(q - p, alpha=rate)
