"""Two ranks: tensor parallel by parallelize_module on a mesh of the CPU, the same batch on both."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(10, 32), nn.Linear(32, 10), nn.Linear(10, 4)

    def forward(self, x):
        time.sleep(0.004)
        return self.head(x + self.down(self.up(x).relu()))


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(1500, 10), torch.randint(4, (1500,)))
mesh = init_device_mesh("cpu", (2,))
model = parallelize_module(Net(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
for _ in range(10):
    for x, y in DataLoader(data, batch_size=24, shuffle=True, generator=torch.Generator().manual_seed(2)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x), shared=True)
