"""A fused optimizer looks for infinite gradients itself, and skips the batch of a scaler that grows every 6 steps."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=6)
loader = DataLoader(TensorDataset(torch.randn(900, 12), torch.randint(3, (900,))), batch_size=18, shuffle=True)
for _ in range(50):
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y, reduction="sum")).backward()
        scaler.step(optimizer)
        scale = scaler.get_scale()
        scaler.update()
        if scaler.get_scale() >= scale:  # the gradients of a skipped batch are thrown away
            step(len(x))
