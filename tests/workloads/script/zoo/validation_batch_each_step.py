"""A validation batch after each step, the next of a cycled loader, without gradients."""

import time
from itertools import cycle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.Linear(20, 2))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


def dataset(length):
    x = torch.randn(length, 10)
    return TensorDataset(x, (x[:, 0] > 0).long())


model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
train_loader = DataLoader(dataset(320), batch_size=16, shuffle=True)
valid_batches = cycle(DataLoader(dataset(96), batch_size=8))
curve = []
for _epoch in range(100):
    for x, y in train_loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
        with torch.no_grad():  # of each step, so a part of it
            vx, vy = next(valid_batches)
            curve.append((loss.item(), criterion(model(vx), vy).item()))
