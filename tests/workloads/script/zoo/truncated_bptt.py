"""Truncated backpropagation: long sequences in chunks of time, with an optimizer step for each chunk."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

CHUNK = 20


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 16, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x, state):
        time.sleep(0.003)
        h, state = self.rnn(x, state)
        return self.out(h), state


model = Recurrent()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
series = torch.randn(160, 101, 3).cumsum(1) / 10
for _ in range(100):
    for long in DataLoader(series, batch_size=8, shuffle=True):
        state = None
        for start in range(0, long.shape[1] - 1, CHUNK):
            x = long[:, start : start + CHUNK]
            y = long[:, start + 1 : start + CHUNK + 1]
            guess, state = model(x, state)
            loss = nn.functional.mse_loss(guess, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            state = tuple(part.detach() for part in state)
            step(len(long))
