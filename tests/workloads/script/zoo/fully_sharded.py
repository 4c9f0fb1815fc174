"""Two ranks: parameters sharded by fully_shard on a mesh of the CPU, with a distributed sampler."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import step


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        time.sleep(0.001)
        return x + self.down(self.up(x).relu())


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Sequential(nn.Linear(8, 16), Block(16), Block(16), nn.Linear(16, 3))
for module in model:
    if isinstance(module, Block):
        fully_shard(module, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(360, 8), torch.randint(3, (360,)))
sampler = DistributedSampler(data)
for epoch in range(100):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=9, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
