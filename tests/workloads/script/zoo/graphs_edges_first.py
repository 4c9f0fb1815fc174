"""Graphs of different sizes are joined into one: edges first, in rows of (from, to)."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Circuits(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        size = 5 + index % 6
        edges = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size], 1)
        return edges, torch.randn(size, 4), torch.tensor([float(size % 2)])


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, edges, nodes, count):
        time.sleep(0.004)
        sent = torch.relu(self.message(torch.cat([nodes[edges[:, 0]], nodes[edges[:, 1]]], 1)))
        received = torch.zeros(len(nodes), 8).index_add(0, edges[:, 1], sent)
        return torch.stack([part.mean(0) for part in self.head(received).split(count)])


def collate(graphs):
    count = [len(nodes) for _, nodes, _ in graphs]
    starts = [sum(count[:place]) for place in range(len(count))]
    edges = torch.cat([graph[0] + start for graph, start in zip(graphs, starts, strict=True)])
    return edges, torch.cat([graph[1] for graph in graphs]), count, torch.stack([graph[2] for graph in graphs])


model = Convolution()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    for edges, nodes, count, label in DataLoader(Circuits(), batch_size=13, shuffle=True, collate_fn=collate):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(edges, nodes, count), label).backward()
        optimizer.step()
        step(len(count))
