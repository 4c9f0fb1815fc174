"""A GAN as DCGAN trains it: a real pass, a fake pass and a generator pass for each batch, and two optimizers."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

NOISE = 8


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.ConvTranspose2d(NOISE, 8, 4), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, z):
        time.sleep(0.0015)
        return self.net(z).tanh()


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4))

    def forward(self, images):
        time.sleep(0.0015)
        return self.net(images).flatten()


netG, netD = Generator(), Discriminator()
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
loss = nn.BCEWithLogitsLoss()
for _ in range(25):
    for real in DataLoader(torch.rand(640, 1, 8, 8), batch_size=32, shuffle=True):
        netD.zero_grad()
        label = torch.ones(len(real))
        loss(netD(real), label).backward()
        fake = netG(torch.randn(len(real), NOISE, 1, 1))
        loss(netD(fake.detach()), label.fill_(0.0)).backward()
        optD.step()
        step(len(real))
        netG.zero_grad()
        loss(netD(fake), label.fill_(1.0)).backward()
        optG.step()
