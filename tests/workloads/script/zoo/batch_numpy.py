"""Batches are slices of shuffled numpy arrays; there is no loader."""

import time

import numpy as np
import torch
from torch import nn
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


random = np.random.default_rng(0)
inputs = random.normal(size=(250, 6)).astype(np.float32)
targets = np.sin(inputs.sum(1, keepdims=True))
batch_size = 25
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(100):
    order = random.permutation(len(inputs))
    for start in range(0, len(inputs), batch_size):
        chosen = order[start : start + batch_size]
        x, y = inputs[chosen], targets[chosen]
        loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
