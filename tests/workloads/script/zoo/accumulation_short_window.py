"""Gradients of 3 micro-batches are accumulated, and of the one that is left at the end of an epoch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

ACCUMULATION = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 5)

    def forward(self, x):
        time.sleep(0.002)
        return self.layer(x)


data = TensorDataset(torch.randn(78, 8), torch.randint(5, (78,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    seen = 0
    for number, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(x), y) / ACCUMULATION
        loss.backward()
        seen += len(x)
        if number % ACCUMULATION == 0 or number == len(loader):
            optimizer.step()
            optimizer.zero_grad()
            step(seen)
            seen = 0
