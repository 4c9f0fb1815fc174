"""The accuracy on the training batch is logged in each third step, without gradients."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.head = nn.Linear(4 * 8 * 8, 10)

    def forward(self, images):
        time.sleep(0.004)
        return self.head(torch.relu(self.conv(images)).flatten(1))


net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(torch.randn(600, 1, 8, 8), torch.randint(10, (600,))), batch_size=12, shuffle=True)
for _ in range(100):
    for i, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(net(images), labels)
        loss.backward()
        optimizer.step()
        step(len(images))
        if i % 3 == 2:
            with torch.no_grad():
                right = (net(images).argmax(1) == labels).float().mean()
            print(f"step {i}: loss {loss.item():.3f} accuracy {right:.2f}")
