"""A loader wrapped to prepare the next batch on the side, and each batch mixed with itself in reverse."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Pictures(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return np.full((3, 10, 10), index, dtype=np.uint8), index % 6


def fast_collate(items):
    images = torch.from_numpy(np.stack([image for image, _ in items]))
    return images, torch.tensor([target for _, target in items])


class PrefetchLoader:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        first = True
        for next_input, next_target in self.loader:
            next_input = next_input.float().sub_(128).div_(64)
            if not first:
                yield inputs, targets  # noqa: F821
            first = False
            inputs, targets = next_input, next_target
        yield inputs, targets


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 6)

    def forward(self, x):
        time.sleep(0.005)
        return self.fc(self.stem(x).relu().mean((2, 3)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = PrefetchLoader(DataLoader(Pictures(), batch_size=16, shuffle=True, collate_fn=fast_collate, drop_last=True))
for _epoch in range(100):
    for x, y in loader:
        share = float(np.random.beta(0.8, 0.8))
        one_hot = nn.functional.one_hot(y, 6).float()
        x, target = x * share + x.flip(0) * (1 - share), one_hot * share + one_hot.flip(0) * (1 - share)
        loss = nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
