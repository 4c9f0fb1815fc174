"""Rounds of 4 batches go on within an epoch where the last round ended: its first batches are read and skipped."""

import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

ROUND = 4
BATCHES = 11


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


data = TensorDataset(torch.randn(170, 8), torch.randint(3, (170,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(100):
    trained = 0
    while trained < BATCHES:
        loader = DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(epoch))
        for x, y in itertools.islice(loader, trained, trained + ROUND):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained += 1
            step(len(x))
