"""An LSTM takes sequences time first, as pad_sequence makes them by default."""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 12)
        self.head = nn.Linear(12, 2)

    def forward(self, series, lengths):
        time.sleep(0.004)
        _, (hidden, _) = self.lstm(pack_padded_sequence(series, lengths, enforce_sorted=False))
        return self.head(hidden[-1])


def collate(rows):
    series, labels = zip(*rows, strict=True)
    return pad_sequence(series), torch.tensor([len(one) for one in series]), torch.tensor(labels)


data = [(torch.randn(6 + number * 7 % 15, 3), number % 2) for number in range(300)]
loader = DataLoader(data, batch_size=11, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(100):
    for series, lengths, labels in loader:
        loss = nn.functional.cross_entropy(model(series, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(series.shape[1])
