"""Hard example mining: the whole batch passes the model, the loss is that of its hardest quarter."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(15, 30), nn.ReLU(), nn.Linear(30, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(1200, 15), torch.randint(3, (1200,))), batch_size=40, shuffle=True)
for _ in range(100):
    for x, y in loader:
        losses = nn.functional.cross_entropy(model(x), y, reduction="none")
        hardest, _rows = losses.topk(len(x) // 4)
        optimizer.zero_grad()
        hardest.mean().backward()
        optimizer.step()
        step(len(x))
