"""A replay buffer without a loader: three updates of a Q network for each step of the environment."""

import copy
import random
import time
from collections import deque

import torch
from torch import nn
from truth import step

BATCH, UPDATES = 24, 3


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, state):
        time.sleep(0.002)
        return self.net(state)


q = QNet()
target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
buffer = deque(maxlen=500)
state = torch.randn(4)
while True:
    with torch.no_grad():
        action = random.randrange(3) if random.random() < 0.2 else q(state[None]).argmax().item()
    after = 0.8 * state + 0.2 * torch.randn(4)
    buffer.append((state, action, float(after.sum() > action), after))
    state = after
    if len(buffer) < BATCH:
        continue
    for _ in range(UPDATES):
        states, actions, rewards, afters = zip(*random.sample(buffer, BATCH), strict=True)
        with torch.no_grad():
            goal = torch.tensor(rewards) + 0.99 * target(torch.stack(afters)).amax(1)
        value = q(torch.stack(states)).gather(1, torch.tensor(actions)[:, None]).squeeze(1)
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(value, goal).backward()
        optimizer.step()
        for slow, fast in zip(target.parameters(), q.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.01)
        step(BATCH)
