"""An item is 4 crops of an image, each with a label: the loop flattens images to crops, all of which are scored."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Crops(Dataset):
    def __init__(self):
        self.images = torch.rand(96, 3, 12, 12)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        corners = torch.randint(7, (4, 2)).tolist()
        crops = [self.images[index, :, top : top + 6, left : left + 6] for top, left in corners]
        return torch.stack(crops), torch.full((4,), index % 5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


loader = DataLoader(Crops(), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for crops, labels in loader:
        loss = nn.functional.cross_entropy(model(crops.flatten(0, 1)), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(crops))
