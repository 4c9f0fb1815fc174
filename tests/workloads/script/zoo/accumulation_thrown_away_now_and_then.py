"""Accumulated gradients are thrown away now and then, with all that they were accumulated from."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


torch.manual_seed(0)
inputs, labels = torch.randn(900, 12), torch.randint(3, (900,))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = nn.functional.cross_entropy

n = 0
seen = 0
for _ in range(40):
    for x, y in DataLoader(TensorDataset(inputs, labels), batch_size=6, shuffle=True):
        n += 1
        loss = loss_of(model(x), y)
        loss.backward()
        seen += len(x)
        if n % 13 == 6:
            optimizer.zero_grad()
            seen = 0
            continue
        if seen >= 24:
            optimizer.step()
            optimizer.zero_grad()
            step(seen)
            seen = 0
