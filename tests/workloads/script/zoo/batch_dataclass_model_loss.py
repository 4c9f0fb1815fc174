"""A batch is a dataclass, and the model is called by a method: model.loss(batch)."""

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


@dataclass
class Batch:
    users: torch.Tensor
    items: torch.Tensor
    ratings: torch.Tensor


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(100, 8)
        self.item = nn.Embedding(60, 8)

    def loss(self, batch):
        time.sleep(0.004)
        predicted = (self.user(batch.users) * self.item(batch.items)).sum(1)
        return nn.functional.mse_loss(predicted, batch.ratings)


def collate(rows):
    users, items, ratings = zip(*rows, strict=True)
    return Batch(torch.stack(users), torch.stack(items), torch.stack(ratings))


data = TensorDataset(torch.randint(100, (800,)), torch.randint(60, (800,)), torch.rand(800) * 5)
model = Factors()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    for batch in DataLoader(data, batch_size=32, shuffle=True, collate_fn=collate):
        loss = model.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch.ratings))
