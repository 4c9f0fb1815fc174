"""A batch sampler fills batches up to a number of tokens: from 4 long sentences to 40 short ones."""

import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler
from truth import step


class Buckets(Sampler):
    def __init__(self, lengths, tokens):
        self.batches = []
        batch = []
        for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
            if batch and lengths[index] * (len(batch) + 1) > tokens:
                self.batches.append(batch)
                batch = []
            batch.append(index)
        self.batches.append(batch)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))

    def __len__(self):
        return len(self.batches)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.gru = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 100)

    def forward(self, tokens):
        time.sleep(0.004)
        return self.head(self.gru(self.embed(tokens))[0])


lengths = [5 + number * 11 % 46 for number in range(500)]
sentences = [torch.randint(1, 100, (length,)) for length in lengths]
loader = DataLoader(
    sentences, batch_sampler=Buckets(lengths, 200), collate_fn=lambda texts: pad_sequence(texts, batch_first=True)
)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    for tokens in loader:
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.transpose(1, 2), tokens[:, 1:], ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(tokens))
