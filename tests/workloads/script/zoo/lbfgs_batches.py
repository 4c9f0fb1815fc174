"""LBFGS over the batches of a loader: each closure is called several times for a step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Logistic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(9, 1)

    def forward(self, x):
        time.sleep(0.0015)
        return self.layer(x).squeeze(1)


torch.manual_seed(3)
x = torch.randn(1500, 9)
data = TensorDataset(x, (x.sum(1) + torch.randn(1500) > 0).float())
model = Logistic()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=4)
for _ in range(20):
    for batch, target in DataLoader(data, batch_size=50, shuffle=True):

        def closure(batch=batch, target=target):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), target)
            loss.backward()
            return loss

        optimizer.step(closure)
        step(len(batch))
