"""Validation in inference mode on the first 3 batches of a longer loader, every 8 steps."""

import time
from itertools import count

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step, testing


class Signals(Dataset):
    def __init__(self, length, seed):
        generator = torch.Generator().manual_seed(seed)
        self.waves = torch.randn(length, 1, 32, generator=generator)
        self.labels = torch.randint(3, (length,), generator=generator)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        return {"wave": self.waves[index], "label": self.labels[index]}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 5)
        self.head = nn.Linear(8, 3)

    def forward(self, wave):
        time.sleep(0.005)
        return self.head(self.conv(wave).relu().mean(2))


@torch.inference_mode()
def quick_check(model, loader):
    model.eval()
    losses = []
    for i, batch in enumerate(loader):
        if i == 3:
            break
        losses.append(nn.functional.cross_entropy(model(batch["wave"]), batch["label"]).item())
    model.train()
    return sum(losses) / len(losses)


train_loader = DataLoader(Signals(600, 0), batch_size=12, shuffle=True, drop_last=True)
valid_loader = DataLoader(Signals(400, 1), batch_size=40)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for iteration, batch in zip(count(1), train_loader):
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(batch["wave"]), batch["label"]).backward()
    optimizer.step()
    step(len(batch["label"]))
    if iteration % 8 == 0:
        with testing():
            print(iteration, quick_check(model, valid_loader))
