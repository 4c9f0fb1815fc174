"""A denoiser draws pictures in eval mode every 9 steps, by 8 passes from noise: a look at the model, no training."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(17, 32), nn.SiLU(), nn.Dropout(0.1), nn.Linear(32, 16))

    def forward(self, pictures, t):
        time.sleep(0.003)
        return self.net(torch.cat([pictures, t[:, None]], 1))


@torch.no_grad()
def draw(model, number):
    model.eval()
    pictures = torch.randn(number, 16)
    for t in torch.linspace(1, 0.125, 8):
        pictures = pictures - 0.125 * model(pictures, t.expand(number))
    model.train()
    return pictures


model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters())
steps = 0
for _ in range(20):
    for (pictures,) in DataLoader(TensorDataset(torch.randn(800, 16)), batch_size=32, shuffle=True):
        t, noise = torch.rand(len(pictures)), torch.randn_like(pictures)
        noisy = (1 - t[:, None]) * pictures + t[:, None] * noise
        loss = (model(noisy, t) - (noise - pictures)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        step(len(pictures))
        if steps % 9 == 0:
            with testing():
                draw(model, 4)
