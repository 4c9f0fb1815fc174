"""A replay buffer as an iterable data set behind a loader: one environment step and one update for each batch."""

import random
import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from truth import step


class Replay(IterableDataset):
    def __init__(self, buffer, samples):
        self.buffer, self.samples = buffer, samples

    def __iter__(self):
        yield from random.sample(self.buffer, self.samples)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, state):
        time.sleep(0.002)
        return self.net(state)


def play(q, state):
    with torch.no_grad():
        action = q(state.unsqueeze(0)).argmax().item() if random.random() > 0.1 else random.randrange(2)
    after = 0.9 * state + 0.1 * torch.randn(4)
    return (state, action, float(after.sum() > 0), after), after


q, target = QNet(), QNet()
target.load_state_dict(q.state_dict())
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
buffer = deque([(torch.randn(4), i % 2, 0.0, torch.randn(4)) for i in range(200)], maxlen=1000)
state = torch.randn(4)
while True:
    for states, actions, rewards, afters in DataLoader(Replay(buffer, 96), batch_size=16):
        move, state = play(q, state)
        buffer.append(move)
        value = q(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            goal = rewards.float() + 0.95 * target(afters).max(1).values
        loss = nn.functional.mse_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(states))
