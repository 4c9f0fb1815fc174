"""Two ranks: data parallel without a distributed sampler, each rank shuffles all data by a seed of its own."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(2000, 10), torch.randint(4, (2000,)))
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
order = torch.Generator().manual_seed(100 + int(os.environ["RANK"]))
for _ in range(10):
    for x, y in DataLoader(data, batch_size=20, shuffle=True, generator=order):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
