"""Micro-batches are accumulated until 300 tokens are reached, so that their number varies."""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from truth import step

TOKENS = 300


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.head = nn.Linear(16, 100)

    def forward(self, tokens):
        time.sleep(0.0015)
        return self.head(self.embed(tokens))


texts = [torch.randint(1, 100, (4 + number * 13 % 37,)) for number in range(600)]
loader = DataLoader(texts, batch_size=5, shuffle=True, collate_fn=lambda batch: pad_sequence(batch, batch_first=True))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
tokens_seen = texts_seen = 0
for _ in range(100):
    for tokens in loader:
        scores = model(tokens[:, :-1]).transpose(1, 2)
        loss = nn.functional.cross_entropy(scores, tokens[:, 1:], ignore_index=0, reduction="sum")
        (loss / TOKENS).backward()
        tokens_seen += int((tokens != 0).sum())
        texts_seen += len(tokens)
        if tokens_seen >= TOKENS:
            optimizer.step()
            optimizer.zero_grad()
            step(texts_seen)
            tokens_seen = texts_seen = 0
