"""LBFGS with a closure on all samples at once, without a loader."""

import time

import torch
from torch import nn
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        time.sleep(0.0015)
        return self.net(x)


x = torch.linspace(-3, 3, 120).unsqueeze(1)
y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)
model = Net()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=10)


def closure():
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss


for _ in range(200):
    loss = optimizer.step(closure)
    step(len(x))
