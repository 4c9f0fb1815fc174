"""Training in a thread, while the main thread waits and reports."""

import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

progress = {"loss": float("nan")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2))

    def forward(self, x):
        time.sleep(0.005)
        return self.layers(x)


def train():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(320, 10), torch.randint(2, (320,))), batch_size=16, shuffle=True)
    for _epoch in range(100):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress["loss"] = loss.item()
            step(len(x))


thread = threading.Thread(target=train)
thread.start()
while thread.is_alive():
    thread.join(timeout=0.05)
    print(f"loss {progress['loss']:.4f}")
