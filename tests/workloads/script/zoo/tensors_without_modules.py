"""A network of plain tensors and functions, no modules, with an optimizer and a loader."""

import time

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from truth import step


def network(x, weights):
    time.sleep(0.004)
    first, second, bias = weights
    return (x @ first).relu() @ second + bias


weights = [torch.randn(10, 24) / 4, torch.randn(24, 3) / 5, torch.zeros(3)]
for weight in weights:
    weight.requires_grad_()
optimizer = torch.optim.SGD(weights, lr=0.1)
data = TensorDataset(torch.randn(900, 10), torch.randint(3, (900,)))
for _ in range(10):
    for x, y in DataLoader(data, batch_size=22, shuffle=True, drop_last=True):
        optimizer.zero_grad()
        F.cross_entropy(network(x, weights), y).backward()
        optimizer.step()
        step(len(x))
