"""The data set is iterable, without a length, and read in the same process."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from truth import step


class Stream(IterableDataset):
    def __iter__(self):
        state = torch.Generator().manual_seed(0)
        for _ in range(210):
            x = torch.randn(5, generator=state)
            yield x, x.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)[:, 0]


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Stream(), batch_size=20)
for _ in range(100):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
