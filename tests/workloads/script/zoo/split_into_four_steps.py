"""A large batch is read, and split into four parts with an optimizer step each."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        time.sleep(0.004)
        return self.out(torch.tanh(self.hidden(x)))


model = Regressor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(512, 6), torch.randn(512, 1)), batch_size=64, shuffle=True)
for _ in range(100):
    for inputs, targets in loader:
        for x, y in zip(inputs.split(16), targets.split(16), strict=True):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step(len(x))
