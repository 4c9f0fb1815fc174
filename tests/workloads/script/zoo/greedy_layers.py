"""Each layer has a loss and an optimizer of its own, and passes what it made without gradients to the next."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Block(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.layer = nn.Linear(inputs, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        time.sleep(0.0015)
        h = self.layer(x).relu()
        return h, self.head(h)


blocks = [Block(10), Block(16), Block(16)]
optimizers = [torch.optim.Adam(block.parameters(), lr=1e-3) for block in blocks]
loader = DataLoader(TensorDataset(torch.randn(690, 10), torch.randint(3, (690,))), batch_size=23, shuffle=True)
for _ in range(100):
    for x, y in loader:
        h = x
        for block, optimizer in zip(blocks, optimizers, strict=True):
            h, logits = block(h.detach())
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, y).backward()
            optimizer.step()
        step(len(x))
