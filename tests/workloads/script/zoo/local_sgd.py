"""Two ranks: each trains on its own, parameters are averaged every 5 steps."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))

    def forward(self, x):
        time.sleep(0.005)
        return self.layers(x)


@torch.no_grad()
def average_parameters(model):
    flat = nn.utils.parameters_to_vector(model.parameters())
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat / dist.get_world_size(), model.parameters())


dist.init_process_group("gloo")
torch.manual_seed(3)
data = TensorDataset(torch.randn(480, 10), torch.randint(2, (480,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=24, sampler=sampler)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
steps = 0
for epoch in range(100):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        steps += 1
        if steps % 5 == 0:
            average_parameters(model)
        step(len(x))
