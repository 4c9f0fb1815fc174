"""Two optimizers after one backward pass: one for the matrices, and one for embeddings, norms and biases."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Orthogonal(torch.optim.Optimizer):
    """Moves matrices along their momentum with singular values brought to one."""

    def __init__(self, params, lr=0.02, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.mul_(group["momentum"]).add_(p.grad)
                u, _, v = torch.linalg.svd(average, full_matrices=False)
                p.add_(u @ v, alpha=-group["lr"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.inner, self.head = nn.Linear(16, 16), nn.Linear(16, 50)

    def forward(self, ids):
        time.sleep(0.003)
        return self.head(self.norm(self.inner(self.embed(ids)).relu()))


model = Net()
matrices = [model.inner.weight]
others = [p for p in model.parameters() if p is not model.inner.weight]
optimizers = [torch.optim.AdamW(others, lr=3e-4), Orthogonal(matrices)]
texts = TensorDataset(torch.randint(50, (800, 21)))
for _ in range(50):
    for (ids,) in DataLoader(texts, batch_size=14, shuffle=True):
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        step(len(ids))
