"""An item is a clip of 8 frames; the loop flattens clips to frames for the model, and the loss is of the clip."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

FRAMES = 8


class FrameNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(75, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, frames):
        time.sleep(0.004)
        return self.layers(frames)


clips = TensorDataset(torch.rand(60, FRAMES, 3, 5, 5), torch.randint(4, (60,)))
loader = DataLoader(clips, batch_size=6, shuffle=True)
model = FrameNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(100):
    for clip, label in loader:
        scores = model(clip.flatten(0, 1)).unflatten(0, (-1, FRAMES)).mean(1)
        loss = nn.functional.cross_entropy(scores, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(clip))
