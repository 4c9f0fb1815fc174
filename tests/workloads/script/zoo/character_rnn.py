"""One word at a time: a forward pass for each of its letters, weights updated by hand, and no loader."""

import random
import time

import torch
from torch import nn
from truth import step

LETTERS, CLASSES, HIDDEN = 26, 5, 24


class RNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.i2h = nn.Linear(LETTERS + HIDDEN, HIDDEN)
        self.h2o = nn.Linear(HIDDEN, CLASSES)

    def forward(self, letter, hidden):
        time.sleep(0.0006)
        hidden = torch.tanh(self.i2h(torch.cat([letter, hidden], 1)))
        return self.h2o(hidden), hidden


def example():
    label = random.randrange(CLASSES)
    word = torch.randint(5 * label, 5 * label + 6, (random.randint(5, 9),))
    return torch.tensor([label]), nn.functional.one_hot(word, LETTERS).float().unsqueeze(1)


rnn = RNN()
criterion = nn.CrossEntropyLoss()
for _ in range(10000):
    label, word = example()
    hidden = torch.zeros(1, HIDDEN)
    rnn.zero_grad()
    for letter in word:
        output, hidden = rnn(letter, hidden)
    criterion(output, label).backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-0.005)
    step(1)
