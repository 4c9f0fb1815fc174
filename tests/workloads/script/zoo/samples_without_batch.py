"""Sample by sample: the loader does not batch, and the model is given a vector and a step follows each."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 18), nn.ReLU(), nn.Linear(18, 4))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = TensorDataset(torch.randn(300, 9), torch.randint(4, (300,)))
for _ in range(10):
    for x, y in DataLoader(data, batch_size=None, shuffle=True):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(1)
