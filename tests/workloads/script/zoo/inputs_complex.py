"""Inputs are complex64: a net learns to undo the phase of a received signal."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Equalizer(nn.Module):
    def __init__(self, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(taps, taps, dtype=torch.complex64) / taps)

    def forward(self, received):
        time.sleep(0.004)
        return received @ self.weight


sent = torch.randn(700, 16, dtype=torch.complex64)
received = sent * torch.polar(torch.ones(16), torch.rand(16))
loader = DataLoader(TensorDataset(received, sent), batch_size=14, shuffle=True)
model = Equalizer(16)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    for signal, target in loader:
        loss = (model(signal) - target).abs().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(signal.shape[0])
