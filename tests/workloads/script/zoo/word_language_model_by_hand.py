"""A recurrent language model on columns of text (length x batch), with no loader and updates by hand."""

import time

import torch
from torch import nn
from truth import step

BPTT, COLUMNS, WORDS, LR = 10, 16, 120, 0.5


def batchify(words):
    length = len(words) // COLUMNS
    return words[: length * COLUMNS].view(COLUMNS, length).t().contiguous()


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(WORDS, 24)
        self.rnn = nn.LSTM(24, 32)
        self.decoder = nn.Linear(32, WORDS)

    def forward(self, words, hidden):
        time.sleep(0.004)
        output, hidden = self.rnn(self.encoder(words), hidden)
        return self.decoder(output).view(-1, WORDS), hidden


train_data = batchify(torch.randint(WORDS, (COLUMNS * 200,)))
model = Rnn()
for _epoch in range(100):
    hidden = (torch.zeros(1, COLUMNS, 32), torch.zeros(1, COLUMNS, 32))
    for i in range(0, len(train_data) - 1, BPTT):
        length = min(BPTT, len(train_data) - 1 - i)
        data, targets = train_data[i : i + length], train_data[i + 1 : i + 1 + length].view(-1)
        model.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = model(data, hidden)
        nn.functional.cross_entropy(output, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-LR)
        step(COLUMNS)
