"""Two ranks: the second is slower and has a smaller batch, gradients are weighted by the batch sizes."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self, seconds_per_sample):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.seconds_per_sample = seconds_per_sample

    def forward(self, x):
        time.sleep(self.seconds_per_sample * len(x))
        return self.layers(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
batch_size = (24, 8)[rank]
torch.manual_seed(rank)
data = TensorDataset(torch.randn(batch_size * 20, 8), torch.randint(3, (batch_size * 20,)))
model = DistributedDataParallel(Net((0.0002, 0.0006)[rank]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(100):
    for x, y in DataLoader(data, batch_size=batch_size, shuffle=True):
        total = torch.tensor(float(len(x)))
        dist.all_reduce(total)
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum") * dist.get_world_size() / total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
