"""Neighbours of seed nodes are sampled: the model gets more nodes than are trained, seeds first."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

NODES = 600
features = torch.randn(NODES, 8)
labels = torch.randint(4, (NODES,))
neighbours = torch.randint(NODES, (NODES, 10))


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(8, 4)
        self.near = nn.Linear(8, 4)

    def forward(self, x, edges):
        time.sleep(0.004)
        received = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
        return self.own(x) + self.near(received)


def sample(seeds):
    seeds = torch.tensor(seeds)
    chosen = neighbours[seeds][:, torch.randperm(10)[:3]].flatten()
    others = chosen[~torch.isin(chosen, seeds)].unique()
    nodes = torch.cat([seeds, others])
    place = torch.zeros(NODES, dtype=torch.long)
    place[nodes] = torch.arange(len(nodes))
    edges = torch.stack([place[chosen], place[seeds].repeat_interleave(3)])
    return features[nodes], edges, labels[nodes], len(seeds)


loader = DataLoader(range(NODES), batch_size=20, shuffle=True, collate_fn=sample)
model = Sage()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    for x, edges, y, seeds in loader:
        scores = model(x, edges)[:seeds]
        loss = nn.functional.cross_entropy(scores, y[:seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(seeds)
