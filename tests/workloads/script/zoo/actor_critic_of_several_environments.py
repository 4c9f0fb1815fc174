"""Actor-critic: five steps of eight environments with gradients, then one backward pass of all forty; no loader."""

import time

import torch
from torch import nn
from truth import step


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, observation):
        time.sleep(0.001)
        hidden = self.body(observation)
        return torch.distributions.Categorical(logits=self.policy(hidden)), self.value(hidden).squeeze(1)


model = ActorCritic()
optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-4)
observation = torch.randn(8, 4)
while True:
    log_probs, values, rewards = [], [], []
    for _ in range(5):
        policy, value = model(observation)
        action = policy.sample()
        log_probs.append(policy.log_prob(action))
        values.append(value)
        rewards.append((action == observation[:, :3].argmax(1)).float())
        observation = (0.8 * observation + 0.2 * torch.randn(8, 4)).detach()
    with torch.no_grad():
        target = model(observation)[1]
    loss = torch.zeros(())
    for log_prob, value, reward in zip(reversed(log_probs), reversed(values), reversed(rewards), strict=True):
        target = reward + 0.9 * target
        advantage = target - value
        loss = loss + (advantage.square() - advantage.detach() * log_prob).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(5 * 8)  # transitions
