"""Batches of one large image, whose gradients are accumulated over six of them."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

ACCUMULATED = 6


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))

    def forward(self, image):
        time.sleep(0.0007)
        return self.net(image)


data = TensorDataset(torch.rand(240, 3, 12, 12), torch.randint(2, (240, 12, 12)))
model = Segmenter()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(10):
    for number, (image, mask) in enumerate(DataLoader(data, batch_size=1, shuffle=True), 1):
        loss = nn.functional.cross_entropy(model(image), mask) / ACCUMULATED
        loss.backward()
        if number % ACCUMULATED == 0:
            optimizer.step()
            optimizer.zero_grad()
            step(ACCUMULATED)
