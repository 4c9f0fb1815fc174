"""The test attacks the model: gradients of its inputs, by backward passes in eval mode over a loader of its own"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        time.sleep(0.001)
        return self.layers(x)


def pairs(count):
    return TensorDataset(torch.randn(count, 16), torch.randint(0, 4, (count,)))


model, train, test = Net(), pairs(600), pairs(120)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loss_of = nn.functional.cross_entropy


def attack():
    model.eval()
    for x, y in DataLoader(test, 40):
        change = torch.zeros_like(x)
        for _ in range(4):
            change.requires_grad_()
            loss_of(model(x + change), y).backward()
            change = (change.detach() + 0.02 * change.grad.sign()).clamp(-0.1, 0.1)
        with torch.no_grad():
            model(x + change).argmax(1)
    model.zero_grad()
    model.train()


count = 0
while True:
    for x, y in DataLoader(train, 24, shuffle=True):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        step(len(x))
        count += 1
        if count % 5 == 0:
            with testing():
                attack()
