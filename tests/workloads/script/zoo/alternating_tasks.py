"""Two tasks with a loader each, trained in turns on a shared trunk."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(12, 24)
        self.heads = nn.ModuleDict({"classify": nn.Linear(24, 3), "regress": nn.Linear(24, 1)})

    def forward(self, x, task):
        time.sleep(0.005)
        return self.heads[task](self.trunk(x).relu())


def endless(loader):
    while True:
        yield from loader


x = torch.randn(400, 12)
loaders = {
    "classify": DataLoader(TensorDataset(x[:150], torch.randint(3, (150,))), batch_size=10, shuffle=True),
    "regress": DataLoader(TensorDataset(x[150:], x[150:, :1]), batch_size=25, shuffle=True),
}
losses = {"classify": nn.functional.cross_entropy, "regress": nn.functional.mse_loss}
batches = {task: endless(loader) for task, loader in loaders.items()}
model = MultiTask()
optimizer = torch.optim.Adam(model.parameters())
for iteration in range(1000):
    task = ("classify", "regress")[iteration % 2]
    inputs, targets = next(batches[task])
    loss = losses[task](model(inputs, task), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(inputs))
