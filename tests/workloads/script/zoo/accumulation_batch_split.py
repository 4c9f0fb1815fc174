"""A batch of 30 is split into micro-batches of 8, the last of which has 6."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 5)

    def forward(self, x):
        time.sleep(0.0015)
        return self.layer(x)


data = TensorDataset(torch.randn(240, 8), torch.randint(5, (240,)))
loader = DataLoader(data, batch_size=30, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        for part_x, part_y in zip(x.split(8), y.split(8), strict=True):
            loss = nn.functional.cross_entropy(model(part_x), part_y, reduction="sum") / len(x)
            loss.backward()
        optimizer.step()
        step(len(x))
