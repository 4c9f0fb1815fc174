"""MAML: a loader of tasks, an inner loop with functional weights, and an outer step for each batch of tasks."""

import time

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, Dataset
from truth import step


class Sines(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        amplitude, phase = 0.1 + 4.9 * torch.rand(1), 3.14 * torch.rand(1)
        x = 10 * torch.rand(20, 1) - 5
        y = amplitude * torch.sin(x + phase)
        return x[:10], y[:10], x[10:], y[10:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        time.sleep(0.0005)
        return self.net(x)


model = Net()
outer = torch.optim.Adam(model.parameters(), lr=1e-3)
mse = nn.functional.mse_loss
for _ in range(50):
    for tasks in DataLoader(Sines(), batch_size=4, shuffle=True):
        outer.zero_grad()
        total = 0.0
        for x_support, y_support, x_query, y_query in zip(*tasks, strict=True):
            fast = dict(model.named_parameters())
            loss = mse(functional_call(model, fast, (x_support,)), y_support)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {key: p - 0.01 * g for (key, p), g in zip(fast.items(), grads, strict=True)}
            total = total + mse(functional_call(model, fast, (x_query,)), y_query)
        (total / len(tasks[0])).backward()
        outer.step()
        step(len(tasks[0]))
