"""A batch whose loss is not finite is left out before its backward pass, as trainers do with broken samples."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


torch.manual_seed(0)
x = torch.randn(1000, 10)
x[::120, 3] = float("nan")
data = TensorDataset(x, torch.randint(3, (1000,)))
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    for inputs, labels in DataLoader(data, batch_size=19, shuffle=True, drop_last=True):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        if not torch.isfinite(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(inputs))
