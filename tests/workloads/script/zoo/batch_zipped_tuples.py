"""The collate function is tuple(zip(*batch)): the model takes a list of images and a list of targets."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Streets(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        size = 8 + 2 * (index % 3)
        boxes = index % 5 + 1
        return torch.rand(3, size, size), {"boxes": torch.rand(boxes, 4), "labels": torch.ones(boxes, dtype=torch.long)}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 8, 3, padding=1)
        self.box = nn.Linear(8, 4)
        self.label = nn.Linear(8, 3)

    def forward(self, images, targets):
        time.sleep(0.004)
        found = torch.stack([self.backbone(image[None]).mean((0, 2, 3)) for image in images])
        boxes = torch.cat([target["boxes"] for target in targets])
        labels = torch.cat([target["labels"] for target in targets])
        owner = torch.repeat_interleave(torch.tensor([len(target["boxes"]) for target in targets]))
        return {
            "loss_box": nn.functional.l1_loss(self.box(found)[owner], boxes),
            "loss_label": nn.functional.cross_entropy(self.label(found)[owner], labels),
        }


model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Streets(), batch_size=5, shuffle=True, collate_fn=lambda batch: tuple(zip(*batch, strict=True)))
for _ in range(100):
    for images, targets in loader:
        images = [image.to("cpu") for image in images]
        targets = [{key: value.to("cpu") for key, value in target.items()} for target in targets]
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(images))
