"""A check that the model can overfit: the first batch of the loader is trained over and over."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 8, 3)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        time.sleep(0.004)
        return self.out(self.conv(x).relu().mean(2))


data = TensorDataset(torch.randn(300, 2, 20), torch.randint(3, (300,)))
x, y = next(iter(DataLoader(data, batch_size=12, shuffle=True)))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _iteration in range(500):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(x))
