"""A batch is a list of tuples that the loop stacks itself."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, x):
        time.sleep(0.004)
        return self.layers(x).squeeze(1)


data = TensorDataset(torch.randn(500, 10), torch.rand(500))
loader = DataLoader(data, batch_size=12, shuffle=True, collate_fn=list)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for batch in loader:
        x = torch.stack([item[0] for item in batch])
        y = torch.stack([item[1] for item in batch])
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        step(len(batch))
