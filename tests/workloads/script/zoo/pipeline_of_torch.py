"""Two ranks: a pipeline by torch.distributed.pipelining with four micro-batches, and both ranks read the loader."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Half(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        time.sleep(0.001)
        return self.layers(x)


dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
halves = [Half(nn.Linear(12, 24), nn.ReLU()), Half(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5))]
data = TensorDataset(torch.randn(1280, 12), torch.randint(5, (1280,)))
stage = PipelineStage(halves[rank], rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.cross_entropy)
optimizer = torch.optim.SGD(halves[rank].parameters(), lr=0.1)
for _ in range(10):
    for x, y in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y)
        optimizer.step()
        step(len(x), shared=True)
