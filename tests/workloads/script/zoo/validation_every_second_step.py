"""Validation on a whole small loader after every second step, in eval mode."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


x, y = torch.randn(700, 8), torch.randint(3, (700,))
train_loader = DataLoader(TensorDataset(x[:600], y[:600]), batch_size=15, shuffle=True)
valid_loader = DataLoader(TensorDataset(x[600:], y[600:]), batch_size=50)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration, (inputs, targets) in enumerate(train_loader):
    model.train()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    step(len(inputs))
    if iteration % 2 == 1:
        with testing(), torch.no_grad():
            model.eval()
            print(sum((model(vx).argmax(1) == vy).sum().item() for vx, vy in valid_loader) / 100)
