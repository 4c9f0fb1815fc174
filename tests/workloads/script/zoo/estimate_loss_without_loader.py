"""A character model with get_batch and no loader, whose loss is estimated on both splits in eval mode."""

import time

import torch
from torch import nn
from truth import step, testing

BLOCK, BATCH, VOCAB = 16, 12, 40
text = torch.randint(VOCAB, (5000,))
splits = {"train": text[:4500], "val": text[4500:]}


def get_batch(split):
    data = splits[split]
    at = torch.randint(len(data) - BLOCK - 1, (BATCH,))
    return torch.stack([data[i : i + BLOCK] for i in at]), torch.stack([data[i + 1 : i + BLOCK + 1] for i in at])


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCAB, VOCAB)

    def forward(self, ids, targets):
        time.sleep(0.004)
        logits = self.table(ids)
        return logits, nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    means = {split: sum(model(*get_batch(split))[1].item() for _ in range(5)) / 5 for split in splits}
    model.train()
    return means


model = Bigram()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for iteration in range(1000):
    if iteration % 10 == 0:
        with testing():
            print(iteration, estimate_loss(model))
    _, loss = model(*get_batch("train"))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    step(BATCH)
