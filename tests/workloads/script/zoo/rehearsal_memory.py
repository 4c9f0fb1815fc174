"""Continual learning: as many samples of a memory of earlier tasks are concatenated to each batch of the loader."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 6))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
memory_x, memory_y = torch.randn(200, 10), torch.randint(3, (200,))
loader = DataLoader(TensorDataset(torch.randn(640, 10), torch.randint(3, 6, (640,))), batch_size=16, shuffle=True)
for _ in range(100):
    for x, y in loader:
        rows = torch.randperm(len(memory_x))[: len(x)]
        loss = nn.functional.cross_entropy(net(torch.cat([x, memory_x[rows]])), torch.cat([y, memory_y[rows]]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x) + len(rows))
