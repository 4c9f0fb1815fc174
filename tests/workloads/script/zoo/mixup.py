"""Mixup: each sample of a batch is mixed with another of it."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        time.sleep(0.005)
        return self.net(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(560, 1, 8, 8), torch.randint(10, (560,))), batch_size=28, shuffle=True)
for _ in range(100):
    for x, y in loader:
        weight = np.random.beta(0.4, 0.4)
        index = torch.randperm(len(x))
        logits = net(weight * x + (1 - weight) * x[index])
        loss = weight * criterion(logits, y) + (1 - weight) * criterion(logits, y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
