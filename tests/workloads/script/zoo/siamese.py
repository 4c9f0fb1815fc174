"""A siamese network: a forward pass for each side of the pairs."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Pairs(Dataset):
    def __init__(self):
        self.x = torch.randn(300, 10)
        self.y = torch.randint(3, (300,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        other = int(torch.randint(len(self.x), ()))
        return self.x[index], self.x[other], (self.y[index] == self.y[other]).float()


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 8))

    def forward(self, x):
        time.sleep(0.0025)
        return self.net(x)


tower = Tower()
optimizer = torch.optim.RMSprop(tower.parameters(), lr=1e-3)
for _ in range(100):
    for left, right, same in DataLoader(Pairs(), batch_size=15, shuffle=True):
        distance = nn.functional.pairwise_distance(tower(left), tower(right))
        loss = (same * distance.square() + (1 - same) * (1 - distance).clamp(min=0).square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(same))
