"""The batch sampler is a list of lists of indices, of 5, 10 and 15."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


data = TensorDataset(torch.randn(120, 6), torch.randint(4, (120,)))
order = torch.randperm(120).tolist()
batches = []
while order:
    size = 5 * (1 + len(batches) % 3)
    batches.append(order[:size])
    order = order[size:]
loader = DataLoader(data, batch_sampler=batches)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
