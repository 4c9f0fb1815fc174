"""Another process makes batches and sends them through a queue; there is no loader."""

import time

import numpy as np
import torch
import torch.multiprocessing as processes
from torch import nn
from truth import step


def produce(queue, size):
    random = np.random.default_rng(0)
    while True:
        x = random.normal(size=(size, 6)).astype(np.float32)
        queue.put((x, (x.sum(1) > 0).astype(np.int64)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        time.sleep(0.004)
        return self.layer(x)


if __name__ == "__main__":
    queue = processes.Queue(maxsize=8)
    processes.Process(target=produce, args=(queue, 17), daemon=True).start()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(1000):
        x, y = (torch.from_numpy(part) for part in queue.get())
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
