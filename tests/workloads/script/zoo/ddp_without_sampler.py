"""Two ranks: data parallel without a distributed sampler, so that both shuffle by one seed and train the same."""

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
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        time.sleep(0.005)
        return self.layers(x)


dist.init_process_group("gloo")
torch.manual_seed(7)
data = TensorDataset(torch.randn(160, 8), torch.randint(4, (160,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x), shared=True)
