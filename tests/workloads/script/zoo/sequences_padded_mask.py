"""Sequences are padded, with a mask; the loss is a mean over tokens that are not padding."""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from truth import step


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens, mask):
        time.sleep(0.004)
        return self.head(self.encoder(self.embed(tokens), src_key_padding_mask=~mask))


def collate(sentences):
    tokens = pad_sequence([words for words, _ in sentences], batch_first=True)
    tags = pad_sequence([tags for _, tags in sentences], batch_first=True)
    lengths = torch.tensor([len(words) for words, _ in sentences])
    return {"tokens": tokens, "tags": tags, "mask": torch.arange(tokens.shape[1]) < lengths[:, None]}


lengths = [3 + number * 5 % 17 for number in range(320)]
sentences = [(torch.randint(100, (length,)), torch.randint(5, (length,))) for length in lengths]
model = Tagger()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for batch in DataLoader(sentences, batch_size=7, shuffle=True, collate_fn=collate):
        scores = model(batch["tokens"], batch["mask"])
        losses = nn.functional.cross_entropy(scores.transpose(1, 2), batch["tags"], reduction="none")
        loss = (losses * batch["mask"]).sum() / batch["mask"].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["tokens"]))
