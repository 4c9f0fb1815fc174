"""Fine-tuning with 4 micro-batches per step, whose gradients are divided by the number of all their tokens."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

IGNORE, ACCUMULATE = -100, 4


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 64)

    def forward(self, tokens):
        time.sleep(0.001)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.out(self.layer(self.embed(tokens), mask, is_causal=True))


def collate(rows):
    tokens = nn.utils.rnn.pad_sequence([r["tokens"] for r in rows], batch_first=True)
    labels = nn.utils.rnn.pad_sequence([r["labels"] for r in rows], batch_first=True, padding_value=IGNORE)
    return {"tokens": tokens, "labels": labels}


rows = [{"tokens": torch.randint(64, (5 + i % 9,)), "labels": torch.randint(64, (5 + i % 9,))} for i in range(400)]
loader = DataLoader(rows, batch_size=3, shuffle=True, collate_fn=collate, drop_last=True)
model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
num_tokens = samples = 0
for _epoch in range(100):
    for index, batch in enumerate(loader):
        labels = batch.pop("labels")
        here = (labels != IGNORE).sum()
        num_tokens += here
        samples += len(labels)
        logits = model(**batch)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE) * here
        loss.backward()
        if (index + 1) % ACCUMULATE == 0:
            for parameter in model.parameters():
                parameter.grad /= num_tokens
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step(samples)
            num_tokens = samples = 0
