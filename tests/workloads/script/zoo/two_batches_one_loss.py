"""Two batches of one loader are read one after the other, and have one loss."""

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

for _ in range(40):
    a = iter(DataLoader(TensorDataset(inputs, labels), batch_size=12, shuffle=True, drop_last=True))
    for x, y in a:
        l1 = loss_of(model(x), y)
        u, v = next(a)
        l2 = loss_of(model(u), v)
        optimizer.zero_grad()
        (l1 + l2).backward()
        optimizer.step()
        step(24)
