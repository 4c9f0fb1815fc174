"""Augmentation in the loop doubles the batch: each sample and its mirror image."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))

    def forward(self, images):
        time.sleep(0.005)
        return self.net(images)


def mirrored(images, labels):
    return torch.cat([images, images.flip(-1)]), torch.cat([labels, labels])


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(640, 1, 8, 8), torch.randint(10, (640,))), batch_size=16, shuffle=True)
for _ in range(100):
    for images, labels in loader:
        more, targets = mirrored(images, labels)
        loss = nn.functional.cross_entropy(net(more), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(images))
