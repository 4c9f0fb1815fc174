"""Two ranks: the first reads batches for both and scatters them, then data parallel training."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from truth import step

PER_RANK = 11


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x).squeeze(1)


def scattered(loader, rank, world_size):
    batches = iter(loader) if rank == 0 else None
    for _ in range(100):
        x, y = torch.empty(PER_RANK, 6), torch.empty(PER_RANK)
        parts = [None, None]
        if rank == 0:
            parts = [list(column.chunk(world_size)) for column in next(batches)]
        dist.scatter(x, parts[0], src=0)
        dist.scatter(y, parts[1], src=0)
        yield x, y


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
loader = None
if rank == 0:
    x = torch.randn(2200, 6)
    loader = DataLoader(TensorDataset(x, x.norm(dim=1)), batch_size=PER_RANK * world_size, shuffle=True)
model = DistributedDataParallel(Net())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for x, y in scattered(loader, rank, world_size):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(x))
