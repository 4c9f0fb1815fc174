"""One forward pass, and a backward pass for each of two losses, whose gradients add up; no loader."""

import time

import torch
from torch import nn
from truth import step


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.Tanh())
        self.kind, self.size = nn.Linear(32, 5), nn.Linear(32, 1)

    def forward(self, x):
        time.sleep(0.005)
        hidden = self.trunk(x)
        return self.kind(hidden), self.size(hidden).squeeze(1)


inputs, kinds, sizes = torch.randn(2000, 10), torch.randint(5, (2000,)), torch.rand(2000)
model = TwoHeads()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
while True:
    chosen = torch.randint(2000, (26,))
    kind, size = model(inputs[chosen])
    optimizer.zero_grad()
    nn.functional.cross_entropy(kind, kinds[chosen]).backward(retain_graph=True)
    (0.1 * nn.functional.mse_loss(size, sizes[chosen])).backward()
    optimizer.step()
    step(len(chosen))
