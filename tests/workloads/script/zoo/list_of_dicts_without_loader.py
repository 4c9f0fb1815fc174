"""A batch is a list of dicts that is sampled from memory, without a loader; the model stacks it."""

import random
import time

import torch
from torch import nn
from truth import step


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 4)

    def forward(self, batch):
        time.sleep(0.004)
        images = torch.stack([record["image"] for record in batch])
        predicted = self.head(self.backbone(images).mean((2, 3)))
        return {"loss_box": sum((box - one["boxes"]).abs().mean() for box, one in zip(predicted, batch, strict=True))}


scenes = [{"image": torch.randn(3, 8, 8), "boxes": torch.rand(number % 4 + 1, 4)} for number in range(90)]
model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(1000):
    batch = random.sample(scenes, 7)
    loss = sum(model(batch).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(batch))
