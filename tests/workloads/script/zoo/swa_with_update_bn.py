"""Stochastic weight averaging whose batch norm statistics are updated over the training loader at epochs' ends."""

import time

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


x_all, y_all = torch.randn(200, 8), torch.randint(3, (200,))
train_loader = DataLoader(TensorDataset(x_all[:160], y_all[:160]), batch_size=16, shuffle=True)
valid_loader = DataLoader(TensorDataset(x_all[160:], y_all[160:]), batch_size=40)
model = Net()
averaged = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = SWALR(optimizer, swa_lr=0.02)
for _epoch in range(100):
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
    averaged.update_parameters(model)
    scheduler.step()
    with testing(), torch.no_grad():
        update_bn(train_loader, averaged)
        averaged.eval()
        print(sum((averaged(x).argmax(1) == y).sum().item() for x, y in valid_loader) / 40)
        averaged.train()
