"""The data set is iterable and makes batches itself, in two workers; the loader has batch_size=None."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from truth import step


class Simulated(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        worker = get_worker_info()
        state = torch.Generator().manual_seed(worker.id if worker else 0)
        while True:
            angle = torch.rand(self.size, generator=state) * 6.28
            yield {"angle": angle, "point": torch.stack([angle.cos(), angle.sin()], 1)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, angle):
        time.sleep(0.004)
        return self.layers(angle[:, None])


if __name__ == "__main__":
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for batch in DataLoader(Simulated(40), batch_size=None, num_workers=2):
        loss = nn.functional.mse_loss(model(batch["angle"]), batch["point"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["angle"]))
