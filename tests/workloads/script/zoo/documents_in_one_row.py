"""Nine documents are one row of tokens, with positions that start again and the borders between them."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(150, 16)
        self.place = nn.Embedding(64, 16)
        self.mix = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 150)

    def forward(self, input_ids, position_ids, cu_seqlens):
        time.sleep(0.004)
        x = self.token(input_ids) + self.place(position_ids)
        document = torch.bucketize(torch.arange(x.shape[1]), cu_seqlens[1:], right=True)
        hidden = (document[:, None] != document) | torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return self.head(self.mix(x, src_mask=hidden))


def flatten(documents):
    lengths = torch.tensor([len(document) for document in documents])
    labels = [torch.cat([document[1:], torch.tensor([-100])]) for document in documents]
    return {
        "input_ids": torch.cat(documents)[None],
        "labels": torch.cat(labels)[None],
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
        "cu_seqlens": torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]),
    }


corpus = [torch.randint(150, (6 + number * 5 % 21,)) for number in range(360)]
loader = DataLoader(corpus, batch_size=9, shuffle=True, collate_fn=flatten)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(100):
    for batch in loader:
        labels = batch.pop("labels")
        loss = nn.functional.cross_entropy(model(**batch).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["cu_seqlens"]) - 1)
