"""Two ranks read the same batch by one seed, and each trains its half of it under data parallelism."""

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
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(6)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(1280, 8), torch.randint(4, (1280,)))
for batch in DataLoader(data, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0)):
    x, y = (part.chunk(world_size)[rank] for part in batch)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(x))
