"""Two ranks: a GAN whose two networks are data parallel, each rank with its part of the pictures."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import step


class Wait(nn.Module):
    def forward(self, x):
        time.sleep(0.0015)
        return x


def judged(pictures, target):
    scores = discriminator(pictures)
    return nn.functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.rand(1200, 16))
discriminator = DistributedDataParallel(nn.Sequential(Wait(), nn.Linear(16, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1)))
generator = DistributedDataParallel(nn.Sequential(Wait(), nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 16), nn.Sigmoid()))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
sampler = DistributedSampler(data)
for epoch in range(10):
    sampler.set_epoch(epoch)
    for (real,) in DataLoader(data, batch_size=20, sampler=sampler):
        fake = generator(torch.randn(len(real), 6))
        loss = judged(real, 1.0) + judged(fake.detach(), 0.0)
        of_discriminator.zero_grad()
        loss.backward()
        of_discriminator.step()
        step(len(real))
        of_generator.zero_grad()
        judged(fake, 1.0).backward()
        of_generator.step()
