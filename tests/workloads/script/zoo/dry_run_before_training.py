"""A lazy model is given two samples of zeros to find its sizes, then slices of a tensor at random; no loader."""

import time

import torch
from torch import nn
from truth import step


class Wait(nn.Module):
    def forward(self, x):
        time.sleep(0.004)
        return x


images, labels = torch.rand(1500, 1, 8, 8), torch.randint(10, (1500,))
model = nn.Sequential(
    Wait(), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(20), nn.ReLU(), nn.Linear(20, 10)
)
model(torch.zeros(2, 1, 8, 8))
print(sum(p.numel() for p in model.parameters()), "parameters")
optimizer = torch.optim.NAdam(model.parameters())
while True:
    start = int(torch.randint(1500 - 36, ()))
    loss = nn.functional.cross_entropy(model(images[start : start + 36]), labels[start : start + 36])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(36)
