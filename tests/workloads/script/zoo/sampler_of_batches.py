"""The sampler gives lists of indices with batch_size=None, so that the data set takes a batch at once."""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler
from truth import step


class Table(Dataset):
    def __init__(self, rows):
        self.columns = {"age": torch.rand(rows), "income": torch.rand(rows), "city": torch.randint(20, (rows,))}
        self.target = torch.randint(2, (rows,)).float()

    def __len__(self):
        return len(self.target)

    def __getitem__(self, rows):
        return {name: column[rows] for name, column in self.columns.items()}, self.target[rows]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.city = nn.Embedding(20, 4)
        self.head = nn.Linear(6, 1)

    def forward(self, age, income, city):
        time.sleep(0.004)
        return self.head(torch.cat([age[:, None], income[:, None], self.city(city)], 1))[:, 0]


table = Table(300)
loader = DataLoader(table, sampler=BatchSampler(RandomSampler(table), 28, drop_last=False), batch_size=None)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    for columns, target in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(**columns), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(target))
