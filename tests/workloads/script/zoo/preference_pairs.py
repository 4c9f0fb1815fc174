"""Preferences: chosen and rejected answers pass in one tensor, through the policy and a frozen reference."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Preferences(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        prompt = torch.randint(60, (5,))
        return {
            "chosen": torch.cat([prompt, torch.randint(60, (7,))]),
            "rejected": torch.cat([prompt, torch.randint(60, (7,))]),
        }


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 60)

    def forward(self, tokens):
        time.sleep(0.002)
        return self.head(self.rnn(self.embed(tokens))[0])


def logps(model, tokens):
    scores = model(tokens[:, :-1]).log_softmax(-1)
    return scores.gather(-1, tokens[:, 1:, None]).squeeze(-1)[:, 4:].sum(1).chunk(2)


policy = Language()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-4)
for _ in range(100):
    for batch in DataLoader(Preferences(), batch_size=10, shuffle=True):
        tokens = torch.cat([batch["chosen"], batch["rejected"]])
        with torch.no_grad():
            old_chosen, old_rejected = logps(reference, tokens)
        chosen, rejected = logps(policy, tokens)
        loss = -nn.functional.logsigmoid(0.1 * (chosen - old_chosen - rejected + old_rejected)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(batch["chosen"]))
