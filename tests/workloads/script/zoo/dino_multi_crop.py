"""DINO: two large and four small crops of each image, and a teacher without gradients that follows the student."""

import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Crops(Dataset):
    def __init__(self):
        self.images = torch.rand(320, 3, 16, 16)

    def __len__(self):
        return len(self.images)

    def crop(self, image, size):
        top, left = torch.randint(17 - size, (2,)).tolist()
        return image[:, top : top + size, left : left + size]

    def __getitem__(self, index):
        return [self.crop(self.images[index], size) for size in (12, 12, 6, 6, 6, 6)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 20)

    def forward(self, x):
        time.sleep(0.002)
        return self.head(self.conv(x).relu().mean((2, 3)))


student = Net()
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
for _ in range(100):
    for crops in DataLoader(Crops(), batch_size=8, shuffle=True, drop_last=True):
        large, small = torch.cat(crops[:2]), torch.cat(crops[2:])
        with torch.no_grad():
            goals = (teacher(large) / 0.04).softmax(-1).chunk(2)
        guesses = [*(student(large) / 0.1).chunk(2), *(student(small) / 0.1).chunk(4)]
        pairs = [(g, s) for i, g in enumerate(goals) for j, s in enumerate(guesses) if i != j]
        loss = sum(-(g * s.log_softmax(-1)).sum(-1).mean() for g, s in pairs) / len(pairs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.004)
        step(len(crops[0]))
