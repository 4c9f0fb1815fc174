"""The batch is doubled after step 15 by a new loader."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 14), nn.Tanh(), nn.Linear(14, 1))

    def forward(self, x):
        time.sleep(0.005)
        return self.layers(x)


x = torch.randn(500, 7)
data = TensorDataset(x, x.prod(1, keepdim=True))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done = 0


def train_until(last, batch_size):
    global done
    while done < last:
        for inputs, targets in DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            done += 1
            step(len(inputs))
            if done == last:
                break


train_until(15, batch_size=10)
train_until(1000, batch_size=20)
