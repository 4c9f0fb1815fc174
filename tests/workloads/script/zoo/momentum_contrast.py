"""Momentum contrast: queries against keys of a slow encoder without gradients, and a memory of earlier keys."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        time.sleep(0.002)
        return nn.functional.normalize(self.net(x), dim=1)


class TwoViews(torch.utils.data.Dataset):
    def __init__(self):
        self.images = torch.randn(600, 20)

    def __len__(self):
        return 600

    def __getitem__(self, index):
        image = self.images[index]
        return image + 0.1 * torch.randn(20), image + 0.1 * torch.randn(20)


queries = Encoder()
keys = copy.deepcopy(queries).requires_grad_(False)
memory = nn.functional.normalize(torch.randn(240, 8), dim=1)
optimizer = torch.optim.SGD(queries.parameters(), lr=0.03)
for _ in range(20):
    for first, second in DataLoader(TwoViews(), batch_size=24, shuffle=True, drop_last=True):
        with torch.no_grad():
            for slow, fast in zip(keys.parameters(), queries.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            k = keys(second)
        q = queries(first)
        scores = torch.cat([(q * k).sum(1, keepdim=True), q @ memory.T], 1) / 0.07
        loss = nn.functional.cross_entropy(scores, torch.zeros(len(q), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory = torch.cat([k, memory])[:240]
        step(len(first))
