"""A gradient cache: embeddings by chunks without gradients, the loss of all, then the chunks again with gradients."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

CHUNK = 16


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 8))

    def forward(self, x):
        time.sleep(0.0005)
        return nn.functional.normalize(self.net(x), dim=-1)


def contrastive(queries, passages):
    return nn.functional.cross_entropy(20 * queries @ passages.T, torch.arange(len(queries)))


query, passage = Tower(), Tower()
optimizer = torch.optim.AdamW([*query.parameters(), *passage.parameters()], lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(640, 12), torch.randn(640, 12)), batch_size=64, shuffle=True)
for _ in range(100):
    for batch in loader:
        cached = []
        for tower, texts in zip((query, passage), batch, strict=True):
            with torch.no_grad():
                cached.append(torch.cat([tower(part) for part in texts.split(CHUNK)]).requires_grad_())
        contrastive(*cached).backward()
        optimizer.zero_grad()
        for tower, texts, known in zip((query, passage), batch, cached, strict=True):
            for part, gradient in zip(texts.split(CHUNK), known.grad.split(CHUNK), strict=True):
                (tower(part) * gradient).sum().backward()
        optimizer.step()
        step(len(batch[0]))
