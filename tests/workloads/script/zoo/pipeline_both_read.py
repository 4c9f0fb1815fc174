"""Two ranks: a pipeline of two halves, where both read the same batches, one the inputs and one the labels."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Half(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        time.sleep(0.003)
        return self.layer(x)


dist.init_process_group("gloo")
torch.manual_seed(5)
first = dist.get_rank() == 0
data = TensorDataset(torch.randn(400, 8), torch.randint(4, (400,)))
model = Half(8, 16) if first else Half(16, 4)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x, y in DataLoader(data, batch_size=20, shuffle=True, generator=torch.Generator().manual_seed(epoch)):
        optimizer.zero_grad()
        if first:
            hidden = model(x)
            dist.send(hidden.detach(), 1)
            grad = torch.empty_like(hidden)
            dist.recv(grad, 1)
            hidden.backward(grad)
        else:
            hidden = torch.empty(len(y), 16)
            dist.recv(hidden, 0)
            hidden.requires_grad_()
            nn.functional.cross_entropy(model(hidden.relu()), y).backward()
            dist.send(hidden.grad, 0)
        optimizer.step()
        step(len(x), shared=True)
