"""Regularized dropout: slices of a tensor are concatenated to themselves, and both guesses shall agree; no loader."""

import time

import torch
from torch import nn
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 5))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


inputs, labels = torch.randn(1200, 12), torch.randint(5, (1200,))
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(10):
    for chosen in torch.randperm(1200).split(24):
        x, y = inputs[chosen], labels[chosen]
        scores = model(torch.cat([x, x]))
        one, two = scores.log_softmax(1).chunk(2)
        difference = (one.exp() - two.exp()) * (one - two)  # the divergence of each from the other, added up
        loss = nn.functional.cross_entropy(scores, torch.cat([y, y])) + difference.sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(chosen))  # a sample counts once, with its two masks of dropout
