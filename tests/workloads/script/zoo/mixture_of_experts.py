"""A mixture of experts that routes the tokens of each batch to two of four experts."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Moe(nn.Module):
    def __init__(self, width, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights, chosen = self.gate(flat).softmax(1).topk(2)
        out = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rows, slot = (chosen == index).nonzero(as_tuple=True)
            out.index_add_(0, rows, expert(flat[rows]) * weights[rows, slot, None])
        return x + out.view_as(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.moe, self.head = nn.Embedding(80, 16), Moe(16), nn.Linear(16, 80)

    def forward(self, ids):
        time.sleep(0.004)
        return self.head(self.moe(self.embed(ids)))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randint(80, (400, 21))), batch_size=10, shuffle=True)
for _epoch in range(100):
    for (ids,) in loader:
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(ids))
