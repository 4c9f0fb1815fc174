"""An ensemble in one pass: stacked weights of five models and torch.func.vmap, all on the same batch."""

import copy
import time

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Samples(TensorDataset):
    def __getitem__(self, index):
        time.sleep(0.0002)
        return super().__getitem__(index)


def make():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


weights, buffers = stack_module_state([make() for _ in range(5)])
base = copy.deepcopy(make()).to("meta")


def forward(weights, buffers, x):
    return functional_call(base, (weights, buffers), (x,))


optimizer = torch.optim.Adam(weights.values(), lr=1e-3)
loader = DataLoader(Samples(torch.randn(900, 6), torch.randn(900, 1)), batch_size=18, shuffle=True)
for _ in range(100):
    for x, y in loader:
        guesses = vmap(forward, in_dims=(0, 0, None))(weights, buffers, x)
        loss = (guesses - y).square().mean((1, 2)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
