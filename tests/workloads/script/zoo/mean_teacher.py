"""Mean Teacher: a few labels in each batch, and a teacher that averages the student's weights."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(14, 28)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(28, 5)

    def forward(self, x):
        time.sleep(0.002)
        return self.out(self.drop(torch.relu(self.hidden(x))))


student = Net()
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.detach_()
labels = torch.randint(5, (900,))
labels[torch.rand(900) < 0.7] = -1
loader = DataLoader(TensorDataset(torch.randn(900, 14), labels), batch_size=36, shuffle=True)
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
for _ in range(100):
    for x, y in loader:
        guess = student(x + 0.1 * torch.randn_like(x))
        with torch.no_grad():
            goal = teacher(x + 0.1 * torch.randn_like(x)).softmax(-1)
        loss = nn.functional.cross_entropy(guess, y, ignore_index=-1)
        loss = loss + 3.0 * nn.functional.mse_loss(guess.softmax(-1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.data.mul_(0.99).add_(fast.data, alpha=0.01)
        step(len(x))
