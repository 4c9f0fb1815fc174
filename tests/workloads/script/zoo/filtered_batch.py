"""A random half of each batch that the loader reads is trained, the others are dropped in the loop."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x).squeeze(-1)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(1500, 8), torch.randn(1500)), batch_size=50, shuffle=True)
for _ in range(100):
    for x, y in loader:
        kept = torch.randperm(len(x))[: len(x) // 2]
        x, y = x[kept], y[kept]
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
