"""Two ranks: as batches are dispatched by the first rank, which skips batches with invalid values."""

import time
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class DispatchLoader:
    def __init__(self, loader):
        self.loader, self.rank, self.world_size = loader, dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        batches = iter(self.loader) if self.rank == 0 else None
        while True:
            shapes = [None]
            if self.rank == 0:
                valid = (batch for batch in batches if batch[0].isfinite().all())
                parts = list(islice(valid, self.world_size))
                if len(parts) == self.world_size:
                    whole = [torch.cat(column) for column in zip(*parts, strict=True)]
                    shapes = [[(column.shape, column.dtype) for column in whole]]
            dist.broadcast_object_list(shapes, src=0)
            if shapes[0] is None:
                return
            if self.rank != 0:
                whole = [torch.empty(shape, dtype=dtype) for shape, dtype in shapes[0]]
            for column in whole:
                dist.broadcast(column, src=0)
            size = len(whole[0]) // self.world_size
            yield [column[self.rank * size : (self.rank + 1) * size] for column in whole]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 4)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


dist.init_process_group("gloo")
x = torch.randn(240, 10)
x[::48, 3] = torch.nan
data = TensorDataset(x, torch.randint(4, (240,)))
loader = DispatchLoader(DataLoader(data, batch_size=12))
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
