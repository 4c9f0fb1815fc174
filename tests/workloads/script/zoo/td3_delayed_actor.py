"""Like TD3: one optimizer for both critics, and an actor with another that steps every second time."""

import copy
import time

import torch
from torch import nn
from truth import step

BATCH = 40


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())

    def forward(self, state):
        time.sleep(0.001)
        return self.net(state)


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
        self.two = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, state, action):
        time.sleep(0.001)
        both = torch.cat([state, action], 1)
        return self.one(both), self.two(both)


actor, critics = Actor(), Critics()
old_actor, old_critics = copy.deepcopy(actor), copy.deepcopy(critics)
of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
of_critics = torch.optim.Adam(critics.parameters(), lr=3e-4)
memory = [torch.randn(600, size) for size in (5, 2, 5, 1)]
for i in range(1000):
    rows = torch.randint(600, (BATCH,))
    state, action, after, reward = (part[rows] for part in memory)
    with torch.no_grad():
        smooth = old_actor(after) + (0.2 * torch.randn(BATCH, 2)).clamp(-0.5, 0.5)
        goal = reward + 0.99 * torch.min(*old_critics(after, smooth.clamp(-1, 1)))
    q_one, q_two = critics(state, action)
    of_critics.zero_grad()
    (nn.functional.mse_loss(q_one, goal) + nn.functional.mse_loss(q_two, goal)).backward()
    of_critics.step()
    step(BATCH)
    if i % 2:
        of_actor.zero_grad()
        (-critics(state, actor(state))[0].mean()).backward()
        of_actor.step()
        for slow, fast in ((old_actor, actor), (old_critics, critics)):
            for p, q in zip(slow.parameters(), fast.parameters(), strict=True):
                p.data.copy_(0.995 * p.data + 0.005 * q.data)
