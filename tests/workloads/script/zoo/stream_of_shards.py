"""A stream of shards yields single samples; the loader has batch_size=None, and a wrapper makes batches."""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from truth import step


class Shards(IterableDataset):
    def __init__(self, shards, per_shard):
        self.shards, self.per_shard = shards, per_shard

    def __iter__(self):
        order = list(range(self.shards))
        random.shuffle(order)
        for shard in order:
            for number in range(self.per_shard):
                yield {"__key__": f"{shard:03d}/{number:05d}", "png": torch.rand(3, 6, 6), "cls": number % 5}


class Batched:
    def __init__(self, loader, size):
        self.loader, self.size = loader, size

    def __iter__(self):
        images, labels = [], []
        for sample in self.loader:
            images.append(sample["png"])
            labels.append(sample["cls"])
            if len(images) == self.size:
                yield torch.stack(images), torch.tensor(labels)
                images, labels = [], []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


loader = Batched(DataLoader(Shards(8, 25), batch_size=None), 12)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(100):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(images))
