"""Architecture search: a validation batch trains the architecture, then a training batch the weights, in each step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.choices = nn.ModuleList([nn.Linear(9, 16), nn.Sequential(nn.Linear(9, 16), nn.Tanh())])
        self.head = nn.Linear(16, 4)
        self.alpha = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        time.sleep(0.0025)
        weights = self.alpha.softmax(0)
        return self.head(sum(w * choice(x) for w, choice in zip(weights, self.choices, strict=True)))


def part(samples):
    return TensorDataset(torch.randn(samples, 9), torch.randint(4, (samples,)))


model = Mixed()
weights = [p for name, p in model.named_parameters() if name != "alpha"]
of_weights = torch.optim.SGD(weights, lr=0.025, momentum=0.9)
of_alpha = torch.optim.Adam([model.alpha], lr=3e-4, weight_decay=1e-3)
criterion = nn.CrossEntropyLoss()
train, valid = DataLoader(part(640), batch_size=16, shuffle=True), DataLoader(part(320), batch_size=16, shuffle=True)
valid_iter = iter(valid)
for _ in range(100):
    for x, y in train:
        try:
            x_valid, y_valid = next(valid_iter)
        except StopIteration:
            valid_iter = iter(valid)
            x_valid, y_valid = next(valid_iter)
        of_alpha.zero_grad()
        criterion(model(x_valid), y_valid).backward()
        of_alpha.step()
        of_weights.zero_grad()
        criterion(model(x), y).backward()
        of_weights.step()
        step(len(x) + len(x_valid))
