"""Every fifth step frozen features are judged by a probe, which trains with an optimizer and a loader of its own"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

PROBE = 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 8))

    def forward(self, x):
        time.sleep(0.001)
        return self.layers(x)


unlabelled = TensorDataset(torch.randn(640, 16))
labelled = TensorDataset(torch.randn(320, 16), torch.randint(0, 2, (320,)))
encoder = Encoder()
optimizer = torch.optim.AdamW(encoder.parameters(), 1e-3)


def probe():
    encoder.eval()
    head = nn.Linear(8, 2)
    own, count = torch.optim.SGD(head.parameters(), 0.1), 0
    while count < PROBE:
        for x, y in DataLoader(labelled, 50, shuffle=True):
            with torch.no_grad():
                z = encoder(x)
            own.zero_grad()
            nn.functional.cross_entropy(head(z), y).backward()
            own.step()
            count += 1
            if count == PROBE:
                break
    encoder.train()


count = 0
while True:
    for (x,) in DataLoader(unlabelled, 32, shuffle=True):
        one, two = encoder(x + 0.1 * torch.randn_like(x)), encoder(x)
        loss = nn.functional.cross_entropy(one @ two.T, torch.arange(len(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
        count += 1
        if count % 5 == 0:
            probe()
