"""FixMatch: 8 samples with labels and 56 without, whose weak view makes the label for the strong view."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        time.sleep(0.0015)
        return self.net(x)


def forever(loader):
    while True:
        yield from loader


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, nesterov=True)
some = TensorDataset(torch.randn(80, 20), torch.randint(4, (80,)))
labeled = forever(DataLoader(some, batch_size=8, shuffle=True, drop_last=True))
unlabeled = forever(DataLoader(torch.randn(1400, 20), batch_size=56, shuffle=True, drop_last=True))
for _ in range(1000):
    x, y = next(labeled)
    u = next(unlabeled)
    weak, strong = u + 0.05 * torch.randn_like(u), u + 0.5 * torch.randn_like(u)
    with torch.no_grad():
        confidence, pseudo = net(weak).softmax(-1).max(-1)
    supervised = nn.functional.cross_entropy(net(x), y)
    each = nn.functional.cross_entropy(net(strong), pseudo, reduction="none")
    loss = supervised + (each * (confidence > 0.3)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(x) + len(u))
