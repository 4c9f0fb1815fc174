"""A batch is an object of an own class with a method .to(), as graph libraries have it."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Batch:
    def __init__(self, items):
        self.tokens = torch.stack([item["tokens"] for item in items])
        self.label = torch.tensor([item["label"] for item in items])

    def to(self, device):
        self.tokens = self.tokens.to(device)
        self.label = self.label.to(device)
        return self


class Reviews(Dataset):
    def __len__(self):
        return 333

    def __getitem__(self, index):
        return {"tokens": torch.randint(200, (12,)), "label": index % 2}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(200, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, batch):
        time.sleep(0.004)
        return self.head(self.embed(batch.tokens).mean(1))


device = torch.device("cpu")
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for batch in DataLoader(Reviews(), batch_size=20, shuffle=True, collate_fn=Batch):
        batch = batch.to(device)
        loss = nn.functional.cross_entropy(model(batch), batch.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch.label))
