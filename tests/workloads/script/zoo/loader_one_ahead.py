"""The loop reads one batch ahead, to know which is the last one of an epoch of 5 batches."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Ahead:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        batches = iter(self.loader)
        batch = next(batches)
        for following in batches:
            yield batch, False
            batch = following
        yield batch, True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


data = TensorDataset(torch.randn(72, 8), torch.randint(3, (72,)))
loader = Ahead(DataLoader(data, batch_size=16, shuffle=True))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
for _ in range(100):
    for (x, y), last in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if last:
            scheduler.step()
        step(len(x))
