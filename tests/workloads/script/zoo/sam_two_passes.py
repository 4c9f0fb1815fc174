"""SAM: two passes of each batch, the second at weights moved along the gradient."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **options):
        super().__init__(params, {"rho": rho, **options})
        self.base = base(self.param_groups, **options)

    @torch.no_grad()
    def climb(self):
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in params]).norm()
        for p in params:
            self.state[p]["back"] = p.clone()
            p.add_(p.grad * self.param_groups[0]["rho"] / (norm + 1e-12))
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["back"])
        self.base.step()
        self.zero_grad()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        time.sleep(0.003)
        return self.net(x)


model = Net()
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(1000, 10), torch.randint(4, (1000,))), batch_size=25, shuffle=True)
for _ in range(100):
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.climb()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step(len(x))
