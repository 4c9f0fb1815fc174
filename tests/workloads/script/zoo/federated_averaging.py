"""Federated averaging: each client trains a copy of the model on its own loader, then the copies are averaged."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

CLIENTS = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


def client_data():
    return TensorDataset(torch.randn(48, 8), torch.randint(4, (48,)))


loaders = [DataLoader(client_data(), batch_size=12, shuffle=True) for _ in range(CLIENTS)]
server = Net()
for _ in range(100):
    states = []
    for loader in loaders:
        local = copy.deepcopy(server)
        optimizer = torch.optim.SGD(local.parameters(), lr=0.05)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(local(x), y).backward()
            optimizer.step()
            step(len(x))
        states.append(local.state_dict())
    server.load_state_dict({key: sum(state[key] for state in states) / CLIENTS for key in states[0]})
