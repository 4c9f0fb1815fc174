"""Two ranks: each streams its own shards by an iterable data set, shuffled in a buffer."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset
from truth import step


class Stream(IterableDataset):
    def __init__(self, shards, buffer=32):
        self.shards, self.buffer = shards, buffer

    def __iter__(self):
        held = []
        for shard in self.shards[dist.get_rank() :: dist.get_world_size()]:
            generator = torch.Generator().manual_seed(shard)
            for _ in range(45):
                held.append({"x": torch.randn(10, generator=generator), "y": shard % 4})
                if len(held) > self.buffer:
                    yield held.pop(random.randrange(len(held)))
        yield from held


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4))

    def forward(self, x):
        time.sleep(0.005)
        return self.layers(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.Adam(model.parameters())
for _epoch in range(100):
    for batch in DataLoader(Stream(list(range(8))), batch_size=15):
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["y"]))
