"""All batches are read into a list at the start, which each epoch shuffles and trains."""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


data = TensorDataset(torch.randn(144, 8), torch.randint(4, (144,)))
batches = list(DataLoader(data, batch_size=16, shuffle=True))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(100):
    random.shuffle(batches)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
