"""The next batch is read between the forward and the backward pass."""

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
    it = iter(DataLoader(TensorDataset(inputs, labels), batch_size=20, shuffle=True))
    nxt = next(it, None)
    while nxt is not None:
        x, y = nxt
        out = model(x)
        nxt = next(it, None)
        loss = loss_of(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
