"""Adversarial training: three steps along the gradient of the inputs, then the model learns the moved inputs."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

EPS, ALPHA, ATTACKS = 0.3, 0.1, 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        time.sleep(0.0015)
        return self.net(x)


def attack(model, x, y):
    model.eval()
    delta = torch.empty_like(x).uniform_(-EPS, EPS)
    for _ in range(ATTACKS):
        delta.requires_grad_()
        loss = nn.functional.cross_entropy(model(x + delta), y)
        (gradient,) = torch.autograd.grad(loss, delta)
        delta = (delta.detach() + ALPHA * gradient.sign()).clamp(-EPS, EPS)
    model.train()
    return x + delta


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(TensorDataset(torch.rand(450, 1, 8, 8), torch.randint(10, (450,))), batch_size=18, shuffle=True)
for _ in range(100):
    for x, y in loader:
        moved = attack(model, x, y)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(moved), y).backward()
        optimizer.step()
        step(len(x))
