"""Cross validation: each fold has a new model, optimizer and loader, and ends with a test on what was left out."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from truth import step, testing

FOLDS = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(11, 22), nn.ReLU(), nn.Linear(22, 2))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


data = TensorDataset(torch.randn(160, 11), torch.randint(2, (160,)))
parts = np.array_split(np.random.permutation(len(data)), FOLDS)
for fold, left_out in enumerate(parts):
    rows = np.concatenate([part for i, part in enumerate(parts) if i != fold])
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in DataLoader(Subset(data, rows.tolist()), batch_size=12, shuffle=True):
        model.train()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
    with testing(), torch.no_grad():
        model.eval()
        right = [(model(x).argmax(1) == y).float().mean() for x, y in DataLoader(Subset(data, left_out), batch_size=20)]
    print(f"fold {fold}: accuracy {torch.stack(right).mean():.3f}")
