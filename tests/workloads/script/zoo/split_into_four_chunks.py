"""A batch is read, and split into four chunks whose gradients add up to one step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

CHUNKS = 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 20), nn.GELU())
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        time.sleep(0.0015)
        return self.head(self.features(x))


model = Classifier()
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(960, 10), torch.randint(3, (960,))), batch_size=48, shuffle=True)
for _ in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        for part, label in zip(x.chunk(CHUNKS), y.chunk(CHUNKS), strict=True):
            loss = nn.functional.cross_entropy(model(part), label) / CHUNKS
            loss.backward()
        optimizer.step()
        step(len(x))
