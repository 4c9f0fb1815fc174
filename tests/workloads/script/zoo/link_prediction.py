"""Link prediction: a loader of edges, whose scores need the embeddings of all nodes of the graph; samples are edges."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 16), nn.Linear(16, 8)

    def forward(self, nodes, edges):
        time.sleep(0.004)
        sums = torch.zeros(len(nodes), 16).index_add(0, edges[1], self.first(nodes)[edges[0]])
        return self.second(sums.relu())


nodes, edges = torch.randn(150, 12), torch.randint(150, (2, 1200))
model = Embeddings()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(10):
    for chosen in DataLoader(range(1200), batch_size=80, shuffle=True):
        links = edges[:, chosen]
        wrong = torch.randint(150, (2, len(chosen)))
        z = model(nodes, edges)
        scores = torch.cat([(z[a] * z[b]).sum(1) for a, b in (links, wrong)])
        targets = torch.cat([torch.ones(len(chosen)), torch.zeros(len(chosen))])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(chosen))
