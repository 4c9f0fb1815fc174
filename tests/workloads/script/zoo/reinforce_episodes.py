"""REINFORCE: a forward pass with gradients for each step of the environment, a backward pass for each episode."""

import time

import torch
from torch import nn
from torch.distributions import Categorical
from truth import step

LENGTH = 10


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, state):
        time.sleep(0.0006)
        return self.out(torch.relu(self.hidden(state))).softmax(-1)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
while True:
    state, logps, rewards = torch.randn(4), [], []
    for _ in range(LENGTH):
        choice = Categorical(policy(state.unsqueeze(0)))
        action = choice.sample()
        logps.append(choice.log_prob(action))
        rewards.append(float((state[0] > 0) == bool(action)))
        state = torch.randn(4)
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + 0.95 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    optimizer.zero_grad()
    loss = -(torch.cat(logps) * (returns - returns.mean())).sum()
    loss.backward()
    optimizer.step()
    step(LENGTH)
