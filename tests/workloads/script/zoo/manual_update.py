"""No optimizer: the weights are moved against their gradients by hand."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 10), nn.Sigmoid(), nn.Linear(10, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


lr = 0.05
model = Net()
loader = DataLoader(TensorDataset(torch.randn(450, 5), torch.randn(450, 1)), batch_size=15, shuffle=True)
for _ in range(100):
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * p.grad
        step(len(x))
