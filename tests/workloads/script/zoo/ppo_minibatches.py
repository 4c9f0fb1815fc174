"""PPO without a loader: rollouts without gradients, then epochs of minibatches."""

import time

import torch
from torch import nn
from truth import step

HORIZON, ENVS, EPOCHS, MINIBATCH = 8, 16, 3, 32


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.pi = nn.Linear(32, 2)
        self.v = nn.Linear(32, 1)

    def forward(self, obs):
        time.sleep(0.003)
        hidden = self.body(obs)
        return torch.distributions.Categorical(logits=self.pi(hidden)), self.v(hidden).squeeze(-1)


agent = ActorCritic()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
obs = torch.randn(ENVS, 4)
while True:
    states, actions, logps, values, rewards = [], [], [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            policy, value = agent(obs)
            action = policy.sample()
        states.append(obs), actions.append(action), logps.append(policy.log_prob(action)), values.append(value)
        rewards.append((obs[:, 0] > 0).float() * action)
        obs = 0.9 * obs + 0.3 * torch.randn_like(obs)
    states, actions, logps, values = (torch.cat(part) for part in (states, actions, logps, values))
    advantages = torch.cat(rewards) - values
    for _ in range(EPOCHS):
        for index in torch.randperm(len(states)).split(MINIBATCH):
            policy, value = agent(states[index])
            ratio = (policy.log_prob(actions[index]) - logps[index]).exp()
            gain = torch.min(ratio * advantages[index], ratio.clamp(0.8, 1.2) * advantages[index]).mean()
            loss = 0.5 * (value - advantages[index] - values[index]).pow(2).mean() - gain
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            step(len(index))
