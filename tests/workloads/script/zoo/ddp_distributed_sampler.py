"""Two ranks: data parallel with a distributed sampler, tested on all data by rank 0 only after each epoch."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import step, testing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        time.sleep(0.005)
        return self.layers(x)


dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
data = TensorDataset(torch.randn(240, 8), torch.randint(4, (240,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=12, sampler=sampler)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(100):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
    with testing():
        if rank == 0:
            with torch.no_grad():
                hits = sum((model.module(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, batch_size=60))
            print(f"epoch {epoch} accuracy {hits / 240:.3f}")
        dist.barrier()
