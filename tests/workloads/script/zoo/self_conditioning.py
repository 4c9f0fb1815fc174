"""Diffusion with self-conditioning: four of ten steps make a first guess without gradients."""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(17, 32), nn.SiLU(), nn.Linear(32, 8))

    def forward(self, noisy, t, guess):
        time.sleep(0.004)
        return self.net(torch.cat([noisy, guess, t], dim=1))


random.seed(0)
model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
loader = DataLoader(torch.randn(800, 8), batch_size=16, shuffle=True, drop_last=True)
for _ in range(100):
    for clean in loader:
        t = torch.rand(len(clean), 1)
        noisy = (1 - t) * clean + t * torch.randn_like(clean)
        guess = torch.zeros_like(clean)
        if random.random() < 0.4:
            with torch.no_grad():
                guess = model(noisy, t, guess).detach()
        loss = nn.functional.mse_loss(model(noisy, t, guess), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(clean))
