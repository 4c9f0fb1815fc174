"""Validation every 10 steps without gradients, the model left in train mode."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        time.sleep(0.004)
        return self.out(torch.tanh(self.hidden(x))).squeeze(1)


x_all = torch.randn(900, 6)
y_all = x_all.sum(1).sin()
train_loader = DataLoader(TensorDataset(x_all[:800], y_all[:800]), batch_size=24, shuffle=True)
valid_loader = DataLoader(TensorDataset(x_all[800:], y_all[800:]), batch_size=50)
model = Regressor()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
iteration = 0
for _epoch in range(100):
    for x, y in train_loader:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
        iteration += 1
        if iteration % 10 == 0:
            with testing(), torch.no_grad():
                total = sum((model(vx) - vy).pow(2).sum().item() for vx, vy in valid_loader)
                print(iteration, total / 100)
