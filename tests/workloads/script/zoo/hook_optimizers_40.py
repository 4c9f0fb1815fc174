"""An optimizer for each of 40 parameters, which steps in the hook after its gradient was accumulated."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(20))

    def forward(self, x):
        time.sleep(0.005)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x


model = Net()
optimizers = {parameter: torch.optim.SGD([parameter], lr=1e-3) for parameter in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(update)

data = TensorDataset(torch.randn(500, 8), torch.randn(500, 8))
for _ in range(100):
    for x, y in DataLoader(data, batch_size=10, shuffle=True):
        nn.functional.mse_loss(model(x), y).backward()
        step(len(x))
