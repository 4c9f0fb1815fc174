"""An item of the data set is a chunk of 20 samples: the loader has batch_size=1, and the loop squeezes the batch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Chunks(Dataset):
    def __init__(self, chunks, per_chunk):
        self.x = torch.randn(chunks, per_chunk, 6)
        self.y = torch.randint(3, (chunks, per_chunk))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


loader = DataLoader(Chunks(16, 20), batch_size=1, shuffle=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for x, y in loader:
        x, y = x.squeeze(0), y.squeeze(0)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
