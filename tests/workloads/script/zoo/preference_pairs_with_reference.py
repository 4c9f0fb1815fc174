"""Preferences: chosen and rejected answers in one batch of twice the rows, a frozen reference model on the same."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

BETA = 0.1


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 16)
        self.out = nn.Linear(16, 60)

    def forward(self, input_ids):
        time.sleep(0.002)
        return self.out(self.embed(input_ids).cumsum(1))


def log_probs(model, ids, mask):
    picked = model(ids)[:, :-1].log_softmax(2).gather(2, ids[:, 1:, None]).squeeze(2)
    return (picked * mask[:, 1:]).sum(1)


def collate(rows):
    pad = nn.utils.rnn.pad_sequence
    answers = [row["chosen"] for row in rows] + [row["rejected"] for row in rows]
    ids = pad(answers, batch_first=True)
    return {"input_ids": ids, "mask": (ids > 0).float()}


rows = [{k: torch.randint(1, 60, (5 + (i + j) % 7,)) for j, k in enumerate(("chosen", "rejected"))} for i in range(300)]
loader = DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate, drop_last=True)
policy = Policy()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-4)
for _epoch in range(100):
    for batch in loader:
        chosen, rejected = log_probs(policy, batch["input_ids"], batch["mask"]).chunk(2)
        with torch.no_grad():
            ref_chosen, ref_rejected = log_probs(reference, batch["input_ids"], batch["mask"]).chunk(2)
        margin = (chosen - rejected) - (ref_chosen - ref_rejected)
        loss = -nn.functional.logsigmoid(BETA * margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(chosen))
