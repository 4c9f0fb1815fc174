"""An ensemble: four models learn the same batch, each with its own optimizer."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Member(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        time.sleep(0.0015)
        return self.net(x)


members = [Member(width) for width in (8, 16, 24, 32)]
optimizers = [torch.optim.Adam(member.parameters(), lr=1e-3) for member in members]
loader = DataLoader(TensorDataset(torch.randn(990, 7), torch.randn(990, 1)), batch_size=33, shuffle=True)
for _ in range(100):
    for x, y in loader:
        for member, optimizer in zip(members, optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(member(x), y).backward()
            optimizer.step()
        step(len(x))
