"""Recommendations: a loader of purchases, to each of which the loop adds three random items, all scored in one pass."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(80, 12), nn.Embedding(200, 12)

    def forward(self, users, items):
        time.sleep(0.004)
        return (self.users(users) * self.items(items)).sum(1)


purchases = TensorDataset(torch.randint(80, (2000,)), torch.randint(200, (2000,)))
model = TwoTowers()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(10):
    for users, items in DataLoader(purchases, batch_size=25, shuffle=True):
        others = torch.randint(200, (3 * len(users),))
        scores = model(users.repeat(4), torch.cat([items, others]))
        targets = (torch.arange(len(scores)) < len(users)).float()
        loss = nn.functional.binary_cross_entropy_with_logits(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(users))  # purchases, as the log of such a script says
