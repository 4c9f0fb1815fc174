"""Two ranks: SAM with DDP, whose first pass does not reduce the gradients."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        time.sleep(0.003)
        return self.net(x)


dist.init_process_group("gloo")
torch.manual_seed(int(os.environ["RANK"]))
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.randn(800, 10), torch.randint(4, (800,)))
sampler = DistributedSampler(data)
for epoch in range(100):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=20, sampler=sampler):
        with model.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
        moves = []
        with torch.no_grad():
            for p in model.parameters():
                moves.append(0.05 * p.grad / (p.grad.norm() + 1e-12))
                p.add_(moves[-1])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
        optimizer.zero_grad()
        step(len(x))
