"""A masked autoencoder: the encoder sees a quarter of the patches, the decoder guesses the others."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

PATCH, DIM, KEEP = 4, 24, 4


class MAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, DIM)
        self.place = nn.Parameter(0.02 * torch.randn(1, 16, DIM))
        self.encoder = nn.TransformerEncoderLayer(DIM, 4, 48, batch_first=True)
        self.mask = nn.Parameter(torch.zeros(1, 1, DIM))
        self.decoder = nn.Linear(DIM, PATCH * PATCH)

    def forward(self, images):
        time.sleep(0.004)
        patches = nn.functional.unfold(images, PATCH, stride=PATCH).transpose(1, 2)
        order = torch.rand(patches.shape[:2]).argsort(1)
        tokens = self.embed(patches) + self.place
        kept = order[:, :KEEP, None].expand(-1, -1, DIM)
        seen = self.encoder(tokens.gather(1, kept))
        full = (self.mask + self.place).expand(len(images), -1, -1).scatter(1, kept, seen)
        hidden = torch.ones(patches.shape[:2]).scatter(1, order[:, :KEEP], 0.0)
        each = (self.decoder(full) - patches).square().mean(-1)
        return (each * hidden).sum() / hidden.sum()


model = MAE()
optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-4, betas=(0.9, 0.95))
for _ in range(100):
    for images in DataLoader(torch.rand(400, 1, 16, 16), batch_size=10, shuffle=True):
        loss = model(images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(images))
