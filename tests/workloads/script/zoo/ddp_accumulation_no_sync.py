"""Two ranks: data parallel with 3 micro-batches per step, the first two without synchronisation."""

import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import step

MICRO = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 12), nn.Linear(12, 50)

    def forward(self, ids):
        time.sleep(0.002)
        return self.out(self.embed(ids))


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randint(50, (288, 14)))
sampler = DistributedSampler(data)
model = DistributedDataParallel(Net())
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(100):
    sampler.set_epoch(epoch)
    samples = 0
    for index, (ids,) in enumerate(DataLoader(data, batch_size=6, sampler=sampler)):
        last = index % MICRO == MICRO - 1
        with nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            (loss / MICRO).backward()
        samples += len(ids)
        if last:
            optimizer.step()
            optimizer.zero_grad()
            step(samples)
            samples = 0
