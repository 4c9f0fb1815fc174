"""Batches of few long or many short texts, and a model that is trained by its method compute_loss, not called."""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(60, 16), nn.Linear(16, 5)

    def compute_loss(self, batch):
        time.sleep(0.0001 * batch["ids"].numel())
        return nn.functional.cross_entropy(self.head(self.embed(batch["ids"]).mean(1)), batch["tags"])


def collate(texts):
    ids = nn.utils.rnn.pad_sequence([ids for ids, _ in texts], batch_first=True)
    return {"ids": ids, "tags": torch.tensor([tag for _, tag in texts])}


random.seed(5)
texts = sorted(((torch.randint(1, 60, (random.randint(2, 30),)), index % 5) for index in range(600)),
               key=lambda text: len(text[0]))  # fmt: skip
buckets, bucket = [], []
for index, (ids, _) in enumerate(texts):
    if len(ids) * (len(bucket) + 1) > 60:
        buckets.append(bucket)
        bucket = []
    bucket.append(index)
random.shuffle(buckets)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    for batch in DataLoader(texts, batch_sampler=buckets, collate_fn=collate):
        loss = model.compute_loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["tags"]))
