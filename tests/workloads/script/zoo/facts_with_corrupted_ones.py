"""A knowledge graph: a batch of facts, and four corrupted ones for each in a pass of their own; no loader."""

import time

import torch
from torch import nn
from truth import step


class Translation(nn.Module):
    def __init__(self, entities, relations):
        super().__init__()
        self.entities, self.relations = nn.Embedding(entities, 16), nn.Embedding(relations, 16)

    def forward(self, facts):
        time.sleep(0.002)
        heads, relations, tails = facts.unbind(1)
        return (self.entities(heads) + self.relations(relations) - self.entities(tails)).norm(dim=1)


facts = torch.stack([torch.randint(100, (3000,)), torch.randint(9, (3000,)), torch.randint(100, (3000,))], 1)
model = Translation(100, 9)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for _ in range(10):
    for chosen in torch.randperm(3000).split(40):
        true = facts[chosen]
        false = true.repeat(4, 1)
        false[:, 2] = torch.randint(100, (len(false),))
        loss = (1 + model(true).repeat(4) - model(false)).relu().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(true))  # the corrupted ones are made of the same facts
