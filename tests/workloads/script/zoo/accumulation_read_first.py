"""Four micro-batches are read before their forward passes, as trainers do to count tokens first."""

import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

ACCUMULATION = 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.head = nn.Linear(16, 100)

    def forward(self, input_ids, labels, items):
        time.sleep(0.0015)
        scores = self.head(self.embed(input_ids))[:, :-1]
        losses = nn.functional.cross_entropy(scores.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        return losses / items


def collate(texts):
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100)}


texts = [torch.randint(1, 100, (8 + number % 9,)) for number in range(82)]
loader = DataLoader(texts, batch_size=6, shuffle=True, collate_fn=collate)
model = Model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(100):
    batches = iter(loader)
    while window := list(itertools.islice(batches, ACCUMULATION)):
        items = sum((batch["labels"][:, 1:] != -100).sum() for batch in window)
        for batch in window:
            loss = model(**batch, items=items)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step(sum(len(batch["input_ids"]) for batch in window))
