"""Adam whose step takes a closure with the forward and backward passes."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(9, 18)
        self.two = nn.Linear(18, 2)

    def forward(self, x):
        time.sleep(0.004)
        return self.two(self.one(x).relu())


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(700, 9), torch.randint(2, (700,))), batch_size=14, shuffle=True)
for _ in range(50):
    for x, y in loader:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        step(len(x))
