"""An optimizer that is a plain class and no torch.optim.Optimizer moves the weights by the signs of their momentum."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


class SignOfMomentum:
    def __init__(self, parameters, rate):
        self.parameters, self.rate = list(parameters), rate
        self.momenta = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        for p, momentum in zip(self.parameters, self.momenta, strict=True):
            momentum.lerp_(p.grad, 0.1)
            p -= self.rate * momentum.sign()
            p.grad = None


x = torch.randn(1000, 10)
data = TensorDataset(x, (x.sum(1) > 0).long())
model = Net()
optimizer = SignOfMomentum(model.parameters(), 1e-3)
for _ in range(10):
    for inputs, labels in DataLoader(data, batch_size=25, shuffle=True):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        step(len(inputs))
