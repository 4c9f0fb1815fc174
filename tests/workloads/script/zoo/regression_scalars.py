"""Inputs and targets are vectors of scalars: a line is fitted by its two parameters."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(()))
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        time.sleep(0.004)
        return self.slope * x + self.offset


x = torch.linspace(-1, 1, 400)
y = 3 * x + 2 + 0.1 * torch.randn(400)
model = Line()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    for batch_x, batch_y in DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True):
        loss = nn.functional.mse_loss(model(batch_x), batch_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch_x))
