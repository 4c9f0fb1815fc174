"""Two loaders combined to a dict of batches, the shorter one begun again, and one loss of both."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


def begun_again(loader):
    while True:
        yield from loader


class CombinedLoader:
    def __init__(self, loaders):
        self.loaders = loaders

    def __iter__(self):
        longest = max(len(loader) for loader in self.loaders.values())
        iterators = {k: iter(v) if len(v) == longest else begun_again(v) for k, v in self.loaders.items()}
        for _ in range(longest):
            yield {name: next(iterator) for name, iterator in iterators.items()}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(9, 18)
        self.head = nn.Linear(18, 4)

    def forward(self, x):
        time.sleep(0.003)
        return self.head(self.features(x).relu())


def dataset(length, shift):
    return TensorDataset(torch.randn(length, 9) + shift, torch.randint(4, (length,)))


loader = CombinedLoader(
    {
        "photos": DataLoader(dataset(200, 0.0), batch_size=16, shuffle=True, drop_last=True),
        "sketches": DataLoader(dataset(40, 1.0), batch_size=8, shuffle=True),
    }
)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _epoch in range(100):
    for batch in loader:
        loss = sum(nn.functional.cross_entropy(model(x), y) for x, y in batch.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["photos"][0]) + len(batch["sketches"][0]))
