"""Recommendations: a sparse optimizer for embeddings and a dense one for the rest, slices of ids, no loader."""

import time

import torch
from torch import nn
from truth import step


class Recommender(nn.Module):
    def __init__(self, users, items):
        super().__init__()
        self.users = nn.Embedding(users, 16, sparse=True)
        self.items = nn.Embedding(items, 16, sparse=True)
        self.score = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user, item):
        time.sleep(0.004)
        return self.score(torch.cat([self.users(user), self.items(item)], 1)).squeeze(1)


users, items, liked = torch.randint(200, (6000,)), torch.randint(300, (6000,)), torch.rand(6000)
model = Recommender(200, 300)
sparse = torch.optim.SparseAdam([*model.users.parameters(), *model.items.parameters()])
dense = torch.optim.Adam(model.score.parameters())
for _ in range(10):
    order = torch.randperm(6000)
    for chosen in order.split(120):
        loss = nn.functional.mse_loss(model(users[chosen], items[chosen]), liked[chosen])
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        step(len(chosen))
