"""Texts are one vector of ids with offsets, for an EmbeddingBag."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(300, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, text, offsets):
        time.sleep(0.004)
        return self.head(self.bag(text, offsets))


def collate(rows):
    labels = torch.tensor([label for label, _ in rows])
    texts = [text for _, text in rows]
    offsets = torch.tensor([0] + [len(text) for text in texts[:-1]]).cumsum(0)
    return labels, torch.cat(texts), offsets


news = [(number % 4, torch.randint(300, (5 + number % 23,))) for number in range(350)]
loader = DataLoader(news, batch_size=16, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for _ in range(100):
    for label, text, offsets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(text, offsets), label)
        loss.backward()
        optimizer.step()
        step(label.size(0))
