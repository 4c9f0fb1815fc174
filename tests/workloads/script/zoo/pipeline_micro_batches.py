"""Two ranks: a pipeline of two halves with 3 micro-batches per step, all forwards, then all backwards."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

MICRO, CHUNK = 3, 6


class Half(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        time.sleep(0.001)
        return self.layer(x).tanh()


def received(shape, source):
    tensor = torch.empty(shape)
    dist.recv(tensor, source)
    return tensor


dist.init_process_group("gloo")
first = dist.get_rank() == 0
model = Half(8, 16) if first else Half(16, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(MICRO * CHUNK * 100, 8))
batches = iter(DataLoader(data, batch_size=MICRO * CHUNK)) if first else None
while True:
    optimizer.zero_grad()
    if first:
        (x,) = next(batches)
        outputs = []
        for part in x.chunk(MICRO):
            outputs.append(model(part))
            dist.send(outputs[-1].detach(), 1)
            dist.send(part, 1)
        for output in outputs:
            output.backward(received(output.shape, 1))
    else:
        losses = []
        for _ in range(MICRO):
            hidden = received((CHUNK, 16), 0).requires_grad_()
            losses.append((hidden, nn.functional.mse_loss(model(hidden), received((CHUNK, 8), 0)) / MICRO))
        for hidden, loss in losses:
            loss.backward()
            dist.send(hidden.grad, 0)
    optimizer.step()
    step(len(x) if first else 0)
