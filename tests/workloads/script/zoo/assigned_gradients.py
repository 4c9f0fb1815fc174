"""Gradients of torch.autograd.grad are clipped, assigned to the parameters, and an optimizer steps."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(13, 26), nn.ReLU(), nn.Linear(26, 4))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


net = Net()
parameters = list(net.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.05)
loader = DataLoader(TensorDataset(torch.randn(950, 13), torch.randint(4, (950,))), batch_size=19, shuffle=True)
for _ in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient.clamp(-0.1, 0.1)
        optimizer.step()
        step(len(x))
