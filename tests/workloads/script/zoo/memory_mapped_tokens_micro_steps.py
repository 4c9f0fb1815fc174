"""A small GPT: get_batch from a memory map, 3 micro-steps per step, the next batch read during the backward pass."""

import tempfile
import time

import numpy as np
import torch
from torch import nn
from truth import step

BLOCK, BATCH, MICRO_STEPS = 32, 8, 3
folder = tempfile.TemporaryDirectory()
np.random.default_rng(0).integers(0, 90, 20_000).astype(np.uint16).tofile(f"{folder.name}/train.bin")


def get_batch():
    data = np.memmap(f"{folder.name}/train.bin", dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - BLOCK, (BATCH,))
    x = torch.stack([torch.from_numpy(data[i : i + BLOCK].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + BLOCK].astype(np.int64)) for i in ix])
    return x, y


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(90, 16), nn.Embedding(BLOCK, 16)
        self.lm_head = nn.Linear(16, 90, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        time.sleep(0.002)
        logits = self.lm_head(self.wte(idx) + self.wpe(torch.arange(idx.shape[1])))
        return logits, nn.functional.cross_entropy(logits.view(-1, 90), targets.view(-1))


model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
X, Y = get_batch()
for iter_num in range(1000):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * min(1.0, (iter_num + 1) / 20)
    for _micro_step in range(MICRO_STEPS):
        _, loss = model(X, Y)
        X, Y = get_batch()
        (loss / MICRO_STEPS).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    step(MICRO_STEPS * BATCH)
