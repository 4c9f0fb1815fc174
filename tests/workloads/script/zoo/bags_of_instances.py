"""Multiple-instance learning: bags of different sizes, whose instances are concatenated into one tensor."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Bags(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        instances = torch.randn(3 + index % 7, 10)
        return instances, float(instances[:, 0].max() > 1.5)


def collate(bags):
    sizes = [len(instances) for instances, _ in bags]
    owner = torch.repeat_interleave(torch.arange(len(bags)), torch.tensor(sizes))
    return torch.cat([instances for instances, _ in bags]), owner, torch.tensor([label for _, label in bags])


class AttentionMIL(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(10, 16)
        self.score = nn.Linear(16, 1)
        self.head = nn.Linear(16, 1)

    def forward(self, instances, owner, bags):
        time.sleep(0.004)
        h = self.embed(instances).relu()
        weight = self.score(h).exp()
        total = torch.zeros(bags, 1).index_add(0, owner, weight)
        pooled = torch.zeros(bags, 16).index_add(0, owner, weight * h) / total
        return self.head(pooled).squeeze(-1)


model = AttentionMIL()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
for _ in range(100):
    for instances, owner, labels in DataLoader(Bags(), batch_size=6, shuffle=True, collate_fn=collate):
        loss = nn.functional.binary_cross_entropy_with_logits(model(instances, owner, len(labels)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(labels))
