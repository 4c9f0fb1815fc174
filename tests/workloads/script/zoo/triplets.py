"""Triplets: anchor, positive and negative each pass the network."""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Triplets(Dataset):
    def __init__(self, classes=10, each=30):
        self.groups = torch.randn(classes, each, 12)

    def __len__(self):
        return self.groups.shape[0] * self.groups.shape[1]

    def __getitem__(self, index):
        group, row = divmod(index, self.groups.shape[1])
        other = random.choice([g for g in range(len(self.groups)) if g != group])
        positive, negative = random.randrange(self.groups.shape[1]), random.randrange(self.groups.shape[1])
        return {
            "anchor": self.groups[group, row],
            "positive": self.groups[group, positive],
            "negative": self.groups[other, negative],
        }


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        time.sleep(0.002)
        return nn.functional.normalize(self.net(x), dim=-1)


model = Embedder()
criterion = nn.TripletMarginLoss(margin=0.3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(100):
    for batch in DataLoader(Triplets(), batch_size=18, shuffle=True):
        loss = criterion(model(batch["anchor"]), model(batch["positive"]), model(batch["negative"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["anchor"]))
