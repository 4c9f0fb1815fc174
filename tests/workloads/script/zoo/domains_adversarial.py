"""Domain adaptation: a labelled batch of one domain and a batch of another pass apart, and a critic tells domains."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -0.1 * gradient


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.ReLU())

    def forward(self, x):
        time.sleep(0.002)
        return self.net(x)


features, labels_of, critic = Features(), nn.Linear(24, 4), nn.Linear(24, 1)
optimizer = torch.optim.Adam([*features.parameters(), *labels_of.parameters(), *critic.parameters()])
x = torch.randn(500, 8)
source = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=25, shuffle=True)
target = DataLoader(TensorDataset(torch.randn(500, 8) + 0.5), batch_size=25, shuffle=True)
for _ in range(10):
    for (known, labels), (other,) in zip(source, target, strict=True):
        of_source, of_target = features(known), features(other)
        domains = critic(Reversed.apply(torch.cat([of_source, of_target]))).squeeze(1)
        is_target = torch.cat([torch.zeros(len(known)), torch.ones(len(other))])
        loss = nn.functional.cross_entropy(labels_of(of_source), labels)
        loss = loss + nn.functional.binary_cross_entropy_with_logits(domains, is_target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(known) + len(other))  # different samples, from both domains
