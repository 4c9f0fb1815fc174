"""MAML, one task of 10 + 10 samples a step without a loader: the samples of the task are what is counted."""

import time

import torch
from torch import nn
from torch.func import functional_call
from truth import step

SHOTS, INNER = 10, 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        time.sleep(0.0015)
        return self.net(x)


def task():
    amplitude, phase = 0.1 + 4.9 * torch.rand(1), 3.14 * torch.rand(1)
    x = 10 * torch.rand(2 * SHOTS, 1) - 5
    return x, amplitude * torch.sin(x + phase)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(1000):
    x, y = task()
    fast = dict(model.named_parameters())
    for _ in range(INNER):
        loss = nn.functional.mse_loss(functional_call(model, fast, (x[:SHOTS],)), y[:SHOTS])
        gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {key: p - 0.01 * g for (key, p), g in zip(fast.items(), gradients, strict=True)}
    loss = nn.functional.mse_loss(functional_call(model, fast, (x[SHOTS:],)), y[SHOTS:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(x))
