"""The data set is iterable and read by two workers, which share the lines between them."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from truth import step


class Lines(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for number in range(first, self.count, stride):
            yield torch.tensor([number % 7, number % 11, number % 13], dtype=torch.float32), number % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


if __name__ == "__main__":
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Lines(2000), batch_size=10, num_workers=2)
    for _ in range(100):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            step(len(x))
