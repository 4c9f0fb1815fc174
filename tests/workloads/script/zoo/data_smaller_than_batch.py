"""The data set is smaller than a batch, so an epoch is one batch of 34."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x)


patients = TensorDataset(torch.randn(34, 7), torch.randint(2, (34,)))
loader = DataLoader(patients, batch_size=64, shuffle=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
for _ in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step(len(x))
    scheduler.step()
