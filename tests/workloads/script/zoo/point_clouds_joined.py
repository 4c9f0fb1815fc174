"""Point clouds of different sizes are joined: coordinates, features, the cloud of each point; labels are of points."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, coordinates, features, cloud):
        time.sleep(0.004)
        points = self.point(torch.cat([coordinates, features], 1))
        largest = torch.stack([part.amax(0) for part in points.split(torch.bincount(cloud).tolist())])
        return self.head(torch.cat([points, largest[cloud]], 1))


def collate(clouds):
    coordinates, features, labels = (torch.cat(parts) for parts in zip(*clouds, strict=True))
    cloud = torch.cat([torch.full((len(one[0]),), place) for place, one in enumerate(clouds)])
    return {"coord": coordinates, "feat": features, "segment": labels, "cloud": cloud, "clouds": len(clouds)}


sizes = [40 + number * 13 % 50 for number in range(200)]
rooms = [(torch.rand(size, 3), torch.rand(size, 3), torch.randint(3, (size,))) for size in sizes]
loader = DataLoader(rooms, batch_size=4, shuffle=True, collate_fn=collate, drop_last=True)
model = PointNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _ in range(100):
    for batch in loader:
        scores = model(batch["coord"], batch["feat"], batch["cloud"])
        loss = nn.functional.cross_entropy(scores, batch["segment"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(batch["clouds"])
