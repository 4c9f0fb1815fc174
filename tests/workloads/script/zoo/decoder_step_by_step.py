"""Translation by two networks: the encoder reads a batch, and the decoder is called for each word of the target."""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(40, 16), nn.GRU(16, 24, batch_first=True)

    def forward(self, words):
        time.sleep(0.002)
        return self.rnn(self.embed(words))[1]


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(40, 16), nn.GRU(16, 24, batch_first=True), nn.Linear(24, 40)

    def forward(self, word, hidden):
        time.sleep(0.0003)
        output, hidden = self.rnn(self.embed(word), hidden)
        return self.head(output[:, 0]), hidden


encoder, decoder = Encoder(), Decoder()
optimizers = [torch.optim.Adam(network.parameters()) for network in (encoder, decoder)]
pairs = TensorDataset(torch.randint(40, (640, 9)), torch.randint(40, (640, 7)))
for _ in range(30):
    for source, target in DataLoader(pairs, batch_size=22, shuffle=True, drop_last=True):
        for optimizer in optimizers:
            optimizer.zero_grad()
        hidden, word, loss = encoder(source), torch.zeros(len(source), 1, dtype=torch.long), 0.0
        is_forced = random.random() < 0.5
        for place in range(7):
            scores, hidden = decoder(word, hidden)
            loss = loss + nn.functional.cross_entropy(scores, target[:, place])
            word = target[:, place : place + 1] if is_forced else scores.argmax(1, keepdim=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        step(len(source))
