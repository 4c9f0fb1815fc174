"""Exponentially averaged weights in a deep copy, which is tested on a loader after each epoch."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        time.sleep(0.005)
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


class Ema:
    def __init__(self, model, decay=0.99):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ours, theirs in zip(self.model.state_dict().values(), model.state_dict().values(), strict=True):
            ours.copy_(theirs if not ours.is_floating_point() else self.decay * ours + (1 - self.decay) * theirs)


model = Net()
ema = Ema(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
images, labels = torch.randn(260, 3, 8, 8), torch.randint(5, (260,))
train_loader = DataLoader(TensorDataset(images[:200], labels[:200]), batch_size=20, shuffle=True)
valid_loader = DataLoader(TensorDataset(images[200:], labels[200:]), batch_size=20)
for _epoch in range(100):
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        ema.update(model)
        step(len(x))
    with testing(), torch.no_grad():
        print(sum((ema.model(x).argmax(1) == y).sum().item() for x, y in valid_loader) / 60)
