"""Two stages: the head alone for 12 steps, then all weights with another optimizer and a smaller batch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 40), nn.ReLU())
        self.head = nn.Linear(40, 5)

    def forward(self, x):
        time.sleep(0.004)
        return self.head(self.backbone(x))


def fit(model, optimizer, loader, epochs):
    for _ in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step(len(x))


data = TensorDataset(torch.randn(384, 20), torch.randint(5, (384,)))
model = Net()
model.backbone.requires_grad_(False)
fit(model, torch.optim.Adam(model.head.parameters(), lr=1e-3), DataLoader(data, batch_size=32, shuffle=True), 1)
model.backbone.requires_grad_(True)
fit(model, torch.optim.SGD(model.parameters(), lr=1e-4), DataLoader(data, batch_size=16, shuffle=True), 100)
