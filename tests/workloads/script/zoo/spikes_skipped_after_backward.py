"""A batch whose gradients are far too large is left out: its gradients are dropped after the backward pass, no step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x).squeeze(1)


torch.manual_seed(0)
x = torch.randn(1000, 10)
y = x.sum(1)
y[::150] *= 1e4  # wrong labels
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=21, shuffle=True, drop_last=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        if norm > 1e4:
            print(f"skipped a batch: norm {norm:.3g}")
            continue
        optimizer.step()
        step(len(inputs))
