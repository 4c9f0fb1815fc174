"""A differential equation: 48 points inside, with gradients of the inputs, and 16 at the border apart; no loader."""

import time

import torch
from torch import nn
from truth import step


class Solution(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, points):
        time.sleep(0.002)
        return self.net(points).squeeze(1)


model = Solution()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    inside = torch.rand(48, 2, requires_grad=True)
    border = torch.rand(16, 2)
    border[:, 1] = border[:, 1].round()
    (slope,) = torch.autograd.grad(model(inside).sum(), inside, create_graph=True)
    curvature = torch.autograd.grad(slope[:, 0].sum(), inside, create_graph=True)[0][:, 0]
    loss = (slope[:, 1] - 0.1 * curvature).square().mean() + model(border).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(inside) + len(border))
