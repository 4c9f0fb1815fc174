"""Distillation of a frozen, larger teacher."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

TEMPERATURE = 4.0


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 6))

    def forward(self, x):
        time.sleep(0.0025)
        return self.net(x)


teacher = Net(128).eval()
for p in teacher.parameters():
    p.requires_grad_(False)
student = Net(16)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(880, 12), torch.randint(6, (880,))), batch_size=22, shuffle=True)
for _ in range(100):
    for x, y in loader:
        with torch.no_grad():
            soft = (teacher(x) / TEMPERATURE).softmax(-1)
        logits = student(x)
        kl = nn.functional.kl_div((logits / TEMPERATURE).log_softmax(-1), soft, reduction="batchmean")
        loss = 0.7 * TEMPERATURE**2 * kl + 0.3 * nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
