"""Series are kept time first, (24, 300, 2), and a batch is a slice of the second axis; there is no loader."""

import time

import torch
from torch import nn
from truth import step


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(2, 10)
        self.head = nn.Linear(10, 2)

    def forward(self, past):
        time.sleep(0.004)
        hidden, _ = self.gru(past)
        return self.head(hidden)


series = torch.randn(24, 300, 2).cumsum(0)
size = 15
model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    series = series[:, torch.randperm(series.shape[1])]
    for start in range(0, series.shape[1], size):
        batch = series[:, start : start + size]
        loss = nn.functional.mse_loss(model(batch[:-1]), batch[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(batch.shape[1])
