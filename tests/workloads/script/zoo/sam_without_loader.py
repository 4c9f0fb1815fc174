"""SAM by a closure on random samples of a tensor: two passes a step, and no loader."""

import time

import torch
from torch import nn
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))

    def forward(self, x):
        time.sleep(0.002)
        return self.net(x)


class SharpnessAware:
    """Climbs to the worst point nearby, computes gradients there, and steps from where it was."""

    def __init__(self, optimizer, radius=0.05):
        self.optimizer, self.radius = optimizer, radius
        self.params = optimizer.param_groups[0]["params"]

    def step(self, closure):
        loss = closure()
        norm = torch.stack([p.grad.norm() for p in self.params]).norm()
        moves = [p.grad * self.radius / norm for p in self.params]
        with torch.no_grad():
            for p, move in zip(self.params, moves, strict=True):
                p += move
        closure()
        with torch.no_grad():
            for p, move in zip(self.params, moves, strict=True):
                p -= move
        self.optimizer.step()
        return loss


points, labels = torch.randn(3000, 6), torch.randint(2, (3000,))
model = Net()
optimizer = SharpnessAware(torch.optim.SGD(model.parameters(), lr=0.1))
while True:
    chosen = torch.randperm(3000)[:64]
    x, y = points[chosen], labels[chosen]

    def closure(x=x, y=y):
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    step(64)
