"""Like SAC: two critics and an actor with an optimizer each, trained on one batch of the replay buffer."""

import copy
import time

import torch
from torch import nn
from truth import step

BATCH = 32


class Mlp(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))

    def forward(self, *parts):
        time.sleep(0.0006)
        return self.net(torch.cat(parts, dim=-1))


def act(actor, states):
    mean, log_std = actor(states).chunk(2, dim=-1)
    policy = torch.distributions.Normal(mean, log_std.clamp(-4, 1).exp())
    action = policy.rsample()
    return action.tanh(), policy.log_prob(action).sum(-1, keepdim=True)


actor, one, two = Mlp(6, 4), Mlp(8, 1), Mlp(8, 1)
slow_one, slow_two = copy.deepcopy(one), copy.deepcopy(two)
of_one, of_two, of_actor = (torch.optim.Adam(net.parameters(), lr=3e-4) for net in (one, two, actor))
memory = {"s": torch.randn(400, 6), "a": torch.rand(400, 2), "r": torch.randn(400, 1), "n": torch.randn(400, 6)}
while True:
    rows = torch.randint(400, (BATCH,))
    s, a, r, n = (memory[key][rows] for key in "sarn")
    with torch.no_grad():
        after, logp = act(actor, n)
        goal = r + 0.99 * (torch.min(slow_one(n, after), slow_two(n, after)) - 0.2 * logp)
    for critic, optimizer in ((one, of_one), (two, of_two)):
        optimizer.zero_grad()
        nn.functional.mse_loss(critic(s, a), goal).backward()
        optimizer.step()
    action, logp = act(actor, s)
    of_actor.zero_grad()
    (0.2 * logp - torch.min(one(s, action), two(s, action))).mean().backward()
    of_actor.step()
    for slow, fast in ((slow_one, one), (slow_two, two)):
        for p, q in zip(slow.parameters(), fast.parameters(), strict=True):
            p.data.mul_(0.995).add_(q.data, alpha=0.005)
    step(BATCH)
