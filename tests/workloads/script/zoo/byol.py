"""BYOL: both views pass the online network and, without gradients, the target network that follows it."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
        self.predictor = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        time.sleep(0.0015)
        z = self.encoder(x)
        return z, self.predictor(z)


def view(x):
    return x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)


def distance(p, z):
    return 2 - 2 * nn.functional.cosine_similarity(p, z).mean()


online = Online()
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad = False
optimizer = torch.optim.SGD(online.parameters(), lr=0.03, momentum=0.9)
for _ in range(100):
    for x in DataLoader(torch.randn(600, 16), batch_size=30, shuffle=True, drop_last=True):
        one, two = view(x), view(x)
        with torch.no_grad():
            goal_one, goal_two = target(one)[0], target(two)[0]
        loss = distance(online(one)[1], goal_two) + distance(online(two)[1], goal_one)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
            slow.data = 0.99 * slow.data + 0.01 * fast.data
        step(len(x))
