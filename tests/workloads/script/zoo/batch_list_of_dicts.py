"""A batch is a list of dicts, as detectors take it: the collate function gives back what it gets."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Scenes(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        boxes = index % 4 + 1
        return {"image": torch.randn(3, 8, 8), "boxes": torch.rand(boxes, 4), "image_id": index}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 4)

    def forward(self, batch):
        time.sleep(0.004)
        images = torch.stack([record["image"] for record in batch])
        predicted = self.head(self.backbone(images).mean((2, 3)))
        losses = [(box - record["boxes"]).abs().mean() for box, record in zip(predicted, batch, strict=True)]
        return {"loss_box": torch.stack(losses).mean()}


def identity(batch):
    return batch


model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Scenes(), batch_size=6, shuffle=True, collate_fn=identity)
for _ in range(100):
    for batch in loader:
        loss = sum(model(batch).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch))
