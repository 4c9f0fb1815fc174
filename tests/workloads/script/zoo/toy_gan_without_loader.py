"""A GAN on points of a ring that are drawn anew for each step: discriminator first, then generator; no loader."""

import math
import time

import torch
from torch import nn
from truth import step


class Wait(nn.Module):
    def forward(self, x):
        time.sleep(0.0015)
        return x


def ring(number):
    angle = 2 * math.pi * torch.rand(number)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(number, 2)


discriminator = nn.Sequential(Wait(), nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
generator = nn.Sequential(Wait(), nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
while True:
    real, fake = ring(56), generator(torch.randn(56, 5)).detach()
    loss = nn.functional.softplus(-discriminator(real)).mean() + nn.functional.softplus(discriminator(fake)).mean()
    of_discriminator.zero_grad()
    loss.backward()
    of_discriminator.step()
    step(len(real))

    loss = nn.functional.softplus(-discriminator(generator(torch.randn(56, 5)))).mean()
    of_generator.zero_grad()
    loss.backward()
    of_generator.step()
