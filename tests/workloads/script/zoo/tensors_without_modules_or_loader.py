"""Matrix factorization by plain tensors: random entries are chosen for each step; no modules and no loader."""

import time

import torch
from truth import step

rows, columns = torch.randint(120, (5000,)), torch.randint(90, (5000,))
values = torch.randn(5000)
left = torch.randn(120, 6).div(3).requires_grad_()
right = torch.randn(90, 6).div(3).requires_grad_()
optimizer = torch.optim.Adam([left, right], lr=0.01)
while True:
    entries = torch.randint(5000, (75,))
    time.sleep(0.004)
    guessed = (left[rows[entries]] * right[columns[entries]]).sum(1)
    loss = (guessed - values[entries]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(len(entries))
