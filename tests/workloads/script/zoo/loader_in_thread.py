"""A thread in the background reads up to 6 batches ahead into a queue."""

import threading
import time
from queue import Queue

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Background(threading.Thread):
    def __init__(self, loader, ahead):
        super().__init__(daemon=True)
        self.loader = loader
        self.queue = Queue(ahead)
        self.start()

    def run(self):
        for batch in self.loader:
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self):
        while (batch := self.queue.get()) is not None:
            yield batch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 2)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


data = TensorDataset(torch.randn(200, 12), torch.randint(2, (200,)))
loader = DataLoader(data, batch_size=10, shuffle=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for x, y in Background(loader, ahead=6):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
