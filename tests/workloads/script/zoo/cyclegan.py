"""CycleGAN: two loaders in step, two generators with one optimizer and two discriminators with another."""

import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Net(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, outputs, 3, padding=1))

    def forward(self, images):
        time.sleep(0.0004)
        return self.net(images)


a2b, b2a, da, db = Net(3), Net(3), Net(1), Net(1)
of_generators = torch.optim.Adam(itertools.chain(a2b.parameters(), b2a.parameters()), lr=2e-4, betas=(0.5, 0.999))
of_critics = torch.optim.Adam(itertools.chain(da.parameters(), db.parameters()), lr=2e-4, betas=(0.5, 0.999))
horses = DataLoader(torch.rand(240, 3, 8, 8), batch_size=4, shuffle=True)
zebras = DataLoader(torch.rand(200, 3, 8, 8), batch_size=4, shuffle=True)
mse, l1 = nn.functional.mse_loss, nn.functional.l1_loss


def gan(scores, real):
    return mse(scores, torch.full_like(scores, float(real)))


for _ in range(20):
    for a, b in zip(horses, zebras, strict=False):
        of_generators.zero_grad()
        fake_b, fake_a = a2b(a), b2a(b)
        same = l1(a2b(b), b) + l1(b2a(a), a)
        cycle = l1(b2a(fake_b), a) + l1(a2b(fake_a), b)
        (gan(db(fake_b), True) + gan(da(fake_a), True) + 10 * cycle + 5 * same).backward()
        of_generators.step()
        step(len(a) + len(b))
        of_critics.zero_grad()
        (gan(da(a), True) + gan(da(fake_a.detach()), False)).backward()
        (gan(db(b), True) + gan(db(fake_b.detach()), False)).backward()
        of_critics.step()
