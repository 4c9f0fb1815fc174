"""The batch is raised by accumulation: one micro-batch of 8 a step at first, two after step 10, four after step 20."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 1))

    def forward(self, x):
        time.sleep(0.003)
        return self.net(x).squeeze(1)


def micro_batches(loader):
    while True:
        yield from loader


x = torch.randn(800, 10)
batches = micro_batches(DataLoader(TensorDataset(x, x.sum(1)), batch_size=8, shuffle=True))
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for number in range(100):
    accumulated = 1 if number < 10 else 2 if number < 20 else 4
    trained = 0
    for _ in range(accumulated):
        inputs, targets = next(batches)
        (nn.functional.mse_loss(model(inputs), targets) / accumulated).backward()
        trained += len(inputs)
    optimizer.step()
    optimizer.zero_grad()
    step(trained)
