"""Private training: gradients of each sample by vmap of grad, clipped, summed, noised, and given to an optimizer."""

import time

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset
from truth import step

CLIP, NOISE = 1.0, 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 18), nn.ReLU(), nn.Linear(18, 3))

    def forward(self, x):
        time.sleep(0.003)
        return self.net(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of_sample(weights, x, y):
    return nn.functional.cross_entropy(functional_call(model, weights, (x.unsqueeze(0),)), y.unsqueeze(0))


gradients = vmap(grad(loss_of_sample), in_dims=(None, 0, 0))
loader = DataLoader(TensorDataset(torch.randn(720, 9), torch.randint(3, (720,))), batch_size=24, shuffle=True)
for _ in range(100):
    for x, y in loader:
        of_samples = gradients({name: p.detach() for name, p in model.named_parameters()}, x, y)
        norms = sum(g.flatten(1).square().sum(1) for g in of_samples.values()).sqrt()
        factors = (CLIP / (norms + 1e-6)).clamp(max=1)
        for name, p in model.named_parameters():
            total = torch.einsum("n,n...->...", factors, of_samples[name])
            p.grad = (total + NOISE * CLIP * torch.randn_like(p)) / len(x)
        optimizer.step()
        optimizer.zero_grad()
        step(len(x))
