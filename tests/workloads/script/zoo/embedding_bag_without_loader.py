"""Baskets are slices of flat ids with offsets, as they lie in memory; there is no loader."""

import time

import torch
from torch import nn
from truth import step

SIZE = 22


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(500, 16, mode="sum")
        self.head = nn.Linear(16, 1)

    def forward(self, ids, offsets):
        time.sleep(0.004)
        return self.head(self.bag(ids, offsets))[:, 0]


lengths = torch.randint(1, 12, (440,))
ends = lengths.cumsum(0)
starts = ends - lengths
ids = torch.randint(500, (int(ends[-1]),))
bought = torch.randint(2, (440,)).float()
model = Net()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for _ in range(100):
    for first in range(0, len(lengths), SIZE):
        chosen = slice(first, first + SIZE)
        begin, end = starts[chosen][0], ends[chosen][-1]
        logits = model(ids[begin:end], starts[chosen] - begin)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, bought[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(SIZE)
