"""The batch size is halved when memory does not suffice: model, optimizer and loader are made anew."""

import functools
import gc
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

MOST = 20
DATA = TensorDataset(torch.randn(1000, 10), torch.randint(3, (1000,)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


def executable_batch_size(function, start):
    @functools.wraps(function)
    def retry():
        batch_size = start
        while batch_size:
            try:
                return function(batch_size)
            except MemoryError:
                gc.collect()
                batch_size //= 2
        raise RuntimeError("no batch fits")

    return retry


def train(batch_size):
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(100):
        for x, y in DataLoader(DATA, batch_size=batch_size, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            step(len(x))
            if len(x) > MOST:  # the states of the optimizer are what did not fit
                raise MemoryError(f"{batch_size} samples a batch")


executable_batch_size(train, 64)()
