"""Two workers that persist over epochs of 8 batches, the last of which is short."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Images(Dataset):
    def __init__(self):
        self.images = torch.rand(120, 3, 8, 8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        time.sleep(0.004)
        return self.head(self.features(x).relu().mean((2, 3)))


def main():
    loader = DataLoader(Images(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(100):
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            step(images.shape[0])


if __name__ == "__main__":
    main()
