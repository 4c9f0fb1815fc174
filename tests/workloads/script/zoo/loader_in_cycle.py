"""itertools.cycle over a loader: batches of the first epoch come again, as they were."""

import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 1)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


data = TensorDataset(torch.randn(90, 10), torch.randn(90, 1))
batches = itertools.cycle(DataLoader(data, batch_size=20, shuffle=True))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5000):
    x, y = next(batches)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(x))
