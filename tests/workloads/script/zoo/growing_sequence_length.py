"""A curriculum: sequences are cut to a length that grows with the step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Walks(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        return torch.randn(64, 3).cumsum(0)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(3, 8, 3, padding=2)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        time.sleep(0.004)
        return self.out(self.mix(x.mT)[..., :-2].relu().mT)


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
steps = 0
for _epoch in range(100):
    for walks in DataLoader(Walks(), batch_size=12, shuffle=True):
        length = min(64, 8 + 4 * (steps // 3))
        walks = walks[:, :length]
        loss = nn.functional.smooth_l1_loss(model(walks[:, :-1]), walks[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        step(len(walks))
