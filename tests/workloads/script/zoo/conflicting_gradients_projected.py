"""Two tasks on one batch: gradients of each loss apart, the part of one against the other removed, then a step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.heads = nn.Linear(8, 24), nn.ModuleList([nn.Linear(24, 1), nn.Linear(24, 1)])

    def forward(self, x):
        time.sleep(0.004)
        hidden = self.trunk(x).tanh()
        return [head(hidden).squeeze(1) for head in self.heads]


model = TwoTasks()
params = list(model.parameters())
optimizer = torch.optim.Adam(params, lr=1e-3)
x = torch.randn(900, 8)
data = TensorDataset(x, x.sum(1), -x.prod(1))
for _ in range(10):
    for inputs, *targets in DataLoader(data, batch_size=27, shuffle=True, drop_last=True):
        gradients = []
        for guess, target in zip(model(inputs), targets, strict=True):
            loss = nn.functional.mse_loss(guess, target)
            found = torch.autograd.grad(loss, params, retain_graph=True, materialize_grads=True)
            gradients.append(torch.cat([gradient.flatten() for gradient in found]))
        one, two = gradients
        against = (one @ two).clamp(max=0)
        total = one - against / two.square().sum() * two + two - against / one.square().sum() * one
        for p, part in zip(params, total.split([p.numel() for p in params]), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
        step(len(inputs))
