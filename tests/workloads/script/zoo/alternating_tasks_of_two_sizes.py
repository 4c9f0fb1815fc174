"""Two tasks in turn: a batch of 8 trains one head, the next of 32 the other, with a step each."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.heads = nn.ModuleDict({"class": nn.Linear(24, 4), "value": nn.Linear(24, 1)})

    def forward(self, x, task):
        time.sleep(0.004)
        return self.heads[task](self.trunk(x))


model = TwoHeads()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
classes = DataLoader(TensorDataset(torch.randn(320, 12), torch.randint(4, (320,))), batch_size=8, shuffle=True)
values = DataLoader(TensorDataset(torch.randn(1280, 12), torch.randn(1280, 1)), batch_size=32, shuffle=True)
criteria = {"class": nn.CrossEntropyLoss(), "value": nn.MSELoss()}
for _ in range(100):
    for both in zip(classes, values, strict=True):
        for task, (x, y) in zip(("class", "value"), both, strict=True):
            loss = criteria[task](model(x, task), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step(len(x))
