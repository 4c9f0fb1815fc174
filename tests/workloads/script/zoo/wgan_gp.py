"""WGAN with a gradient penalty: five steps of the critic, then one of the generator."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

CRITIC, LAMBDA = 5, 10


class Sleepy(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.LeakyReLU(0.2), nn.Linear(32, outputs))

    def forward(self, x):
        time.sleep(0.001)
        return self.net(x)


def penalty(critic, real, fake):
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_()
    scores = critic(mixed)
    (gradient,) = torch.autograd.grad(scores, mixed, torch.ones_like(scores), create_graph=True, retain_graph=True)
    return (gradient.norm(dim=1) - 1).square().mean()


generator, critic = Sleepy(6, 2), Sleepy(2, 1)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
for _ in range(100):
    for i, real in enumerate(DataLoader(torch.randn(1000, 2), batch_size=20, shuffle=True), start=1):
        of_critic.zero_grad()
        fake = generator(torch.randn(len(real), 6)).detach()
        gap = critic(fake).mean() - critic(real).mean()
        (gap + LAMBDA * penalty(critic, real, fake)).backward()
        of_critic.step()
        step(len(real))
        if i % CRITIC == 0:
            of_generator.zero_grad()
            (-critic(generator(torch.randn(len(real), 6))).mean()).backward()
            of_generator.step()
