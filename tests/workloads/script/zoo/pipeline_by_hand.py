"""Two ranks: a pipeline of two halves, activations are sent on and gradients back, only the first reads data."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

BATCH = 18


class Half(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        time.sleep(0.003)
        return self.layer(x).tanh()


def first_half():
    data = TensorDataset(torch.randn(540, 8), torch.randint(5, (540,)))
    model = Half(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(100):
        for x, y in DataLoader(data, batch_size=BATCH, shuffle=True):
            activations = model(x)
            dist.send(activations.detach(), 1)
            dist.send(y, 1)
            grad = torch.empty_like(activations)
            dist.recv(grad, 1)
            optimizer.zero_grad()
            activations.backward(grad)
            optimizer.step()
            step(len(x))


def second_half():
    model = Half(16, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        activations, y = torch.empty(BATCH, 16), torch.empty(BATCH, dtype=torch.long)
        dist.recv(activations, 0)
        dist.recv(y, 0)
        activations.requires_grad_()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(activations), y).backward()
        dist.send(activations.grad, 0)
        optimizer.step()
        step(0)


dist.init_process_group("gloo")
first_half() if os.environ["RANK"] == "0" else second_half()
