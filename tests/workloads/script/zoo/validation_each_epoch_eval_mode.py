"""Validation on a second loader in eval mode after each epoch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))

    def forward(self, x):
        time.sleep(0.005)
        return self.layers(x)


def accuracy(model, loader):
    model.eval()
    correct = seen = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
            seen += len(y)
    return correct / seen


train = TensorDataset(torch.randn(130, 8), torch.randint(4, (130,)))
valid = TensorDataset(torch.randn(80, 8), torch.randint(4, (80,)))
train_loader = DataLoader(train, batch_size=20, shuffle=True)
valid_loader = DataLoader(valid, batch_size=32)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(100):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
    with testing():
        print(f"epoch {epoch} accuracy {accuracy(model, valid_loader):.3f}")
