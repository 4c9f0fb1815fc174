"""A thread tests copies of the model on a loader of its own while the training goes on: no time of it is a test's."""

import copy
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)


def test(network, batches):
    network.eval()
    with torch.no_grad():
        hits = sum((network(x).argmax(1) == y).sum().item() for x, y in batches)
    print(f"accuracy of a copy {hits / len(batches.dataset):.3f}")


x = torch.randn(1000, 8)
y = x[:, :4].argmax(1)
training = DataLoader(TensorDataset(x[:800], y[:800]), batch_size=20, shuffle=True)
held_out = DataLoader(TensorDataset(x[800:], y[800:]), batch_size=40)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
steps, tester = 0, None
for _ in range(10):
    for inputs, labels in training:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        step(len(inputs))
        if steps % 8 == 0 and (tester is None or not tester.is_alive()):
            tester = threading.Thread(target=test, args=(copy.deepcopy(model), held_out), daemon=True)
            tester.start()
