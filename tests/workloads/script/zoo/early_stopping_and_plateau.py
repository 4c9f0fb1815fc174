"""Early stopping and a rate that falls on plateaus of the validation loss, tested after each epoch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step, testing


class Pairs(Dataset):
    def __init__(self, length):
        self.x = torch.randn(length, 5)
        self.y = self.x @ torch.arange(5.0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(0.0003)
        return self.x[index], self.y[index]


train_loader = DataLoader(Pairs(160), batch_size=16, shuffle=True)
valid_loader = DataLoader(Pairs(48), batch_size=16)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
best, bad = float("inf"), 0
while bad < 10:
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        step(len(x))
    with testing():
        model.eval()
        with torch.no_grad():
            valid_loss = sum(nn.functional.mse_loss(model(x), y).item() for x, y in valid_loader) / len(valid_loader)
    scheduler.step(valid_loss)
    best, bad = (valid_loss, 0) if valid_loss < best else (best, bad + 1)
