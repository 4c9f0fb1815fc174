"""A batch is a dict of dicts of lists of tensors of different lengths."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Visits(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        return torch.randint(50, (3 + index % 4,)), torch.rand(2), torch.rand(())


def collate(items):
    codes, vitals, stays = zip(*items, strict=True)
    return {"inputs": {"codes": list(codes), "vitals": list(vitals)}, "targets": {"stay": list(stays)}}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.head = nn.Linear(10, 1)

    def forward(self, inputs):
        time.sleep(0.004)
        codes = torch.stack([self.embed(code).mean(0) for code in inputs["codes"]])
        return self.head(torch.cat([codes, torch.stack(inputs["vitals"])], 1))[:, 0]


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Visits(), batch_size=15, shuffle=True, collate_fn=collate)
for _ in range(100):
    for batch in loader:
        target = torch.stack(batch["targets"]["stay"])
        loss = nn.functional.smooth_l1_loss(model(batch["inputs"]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(target))
