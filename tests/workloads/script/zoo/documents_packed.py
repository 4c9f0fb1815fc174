"""The collate function packs 16 documents into few rows of 64 tokens, with the document of each token."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

LENGTH = 64


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(200, 16)
        self.mix = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 200)

    def forward(self, tokens, document):
        time.sleep(0.004)
        x = self.embed(tokens)
        same = document[:, :, None] == document[:, None, :]
        seen = same & torch.ones(LENGTH, LENGTH).tril().bool()
        return self.head(x + self.mix(x, x, x, attn_mask=~seen.repeat_interleave(2, 0), need_weights=False)[0])


def pack(documents):
    rows = [[]]
    for document in documents:
        if sum(map(len, rows[-1])) + len(document) > LENGTH:
            rows.append([])
        rows[-1].append(document)
    tokens = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    owner = torch.full((len(rows), LENGTH), -1)
    for place, row in enumerate(rows):
        joined = torch.cat(row)
        tokens[place, : len(joined)] = joined
        owner[place, : len(joined)] = torch.cat([torch.full((len(one),), n) for n, one in enumerate(row)])
    return {"tokens": tokens, "document": owner, "documents": len(documents)}


corpus = [torch.randint(1, 200, (10 + number * 7 % 25,)) for number in range(640)]
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(100):
    for batch in DataLoader(corpus, batch_size=16, shuffle=True, collate_fn=pack):
        scores = model(batch["tokens"], batch["document"])
        following = batch["document"][:, 1:] == batch["document"][:, :-1]
        targets = batch["tokens"][:, 1:].where(following & (batch["document"][:, 1:] >= 0), -100)
        loss = nn.functional.cross_entropy(scores[:, :-1].transpose(1, 2), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(batch["documents"])
