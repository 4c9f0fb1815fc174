"""Prompts of a loader, answers generated in eval mode without gradients, then PPO epochs over minibatches."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from truth import step

VOCABULARY, NEW, EPOCHS = 50, 4, 2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens):
        time.sleep(0.003)
        return self.head(self.rnn(self.embed(tokens))[0])


@torch.no_grad()
def generate(model, tokens):
    model.eval()
    for _ in range(NEW):
        last = model(tokens)[:, -1]
        tokens = torch.cat([tokens, torch.multinomial(last.softmax(-1), 1)], dim=1)
    model.train()
    return tokens


def logp(model, tokens):
    scores = model(tokens[:, :-1]).log_softmax(-1)
    return scores.gather(-1, tokens[:, 1:, None]).squeeze(-1)[:, -NEW:]


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
for _ in range(100):
    for prompts in DataLoader(torch.randint(VOCABULARY, (320, 6)), batch_size=32, shuffle=True):
        answers = generate(policy, prompts)
        with torch.no_grad():
            old = logp(policy, answers)
        reward = (answers[:, -NEW:] % 2 == 0).float().mean(1, keepdim=True)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(answers)).split(8):
                ratio = (logp(policy, answers[rows]) - old[rows]).exp()
                loss = -(ratio * (reward[rows] - reward.mean())).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                step(len(rows))
