"""The label is first in a batch, then the text, padded to the longest."""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16, padding_idx=0)
        self.head = nn.Linear(16, 4)

    def forward(self, text):
        time.sleep(0.004)
        return self.head(self.embed(text).mean(1))


def collate(rows):
    labels = torch.tensor([label for label, _ in rows])
    return labels, pad_sequence([text for _, text in rows], batch_first=True)


news = [(number % 4, torch.randint(1, 100, (5 + number % 20,))) for number in range(450)]
loader = DataLoader(news, batch_size=18, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(100):
    for label, text in loader:
        loss = nn.functional.cross_entropy(model(text), label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        step(label.size(0))
