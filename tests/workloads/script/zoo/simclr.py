"""SimCLR: two views of each sample, concatenated into one forward pass."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class TwoViews(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return [image + 0.1 * torch.randn_like(image) for _ in range(2)], index % 5


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
        self.projector = nn.Linear(4 * 36, 16)

    def forward(self, x):
        time.sleep(0.005)
        return nn.functional.normalize(self.projector(self.backbone(x)), dim=1)


def info_nce(z):
    scores = (z @ z.T / 0.5).fill_diagonal_(-1e9)
    half = len(z) // 2
    return nn.functional.cross_entropy(scores, torch.arange(len(z)).roll(half))


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, weight_decay=1e-6)
loader = DataLoader(TwoViews(torch.randn(480, 1, 8, 8)), batch_size=24, shuffle=True, drop_last=True)
for _ in range(100):
    for views, _labels in loader:
        loss = info_nce(model(torch.cat(views, dim=0)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(views[0]))
