"""A batch is a tensor of images and a list of captions, which the model tokenizes itself."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step

WORDS = ["a", "the", "dog", "cat", "on", "under", "table", "grass", "red", "two"]


class Captioned(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        words = [WORDS[(index * 7 + place) % len(WORDS)] for place in range(3 + index % 5)]
        return torch.rand(3, 8, 8), " ".join(words)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Flatten(), nn.Linear(192, 8))
        self.text = nn.EmbeddingBag(len(WORDS), 8)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, images, captions):
        time.sleep(0.004)
        tokens = [[WORDS.index(word) for word in caption.split()] for caption in captions]
        starts = torch.tensor([0] + [len(token) for token in tokens[:-1]]).cumsum(0)
        texts = self.text(torch.tensor([place for token in tokens for place in token]), starts)
        return self.scale * nn.functional.normalize(self.image(images)) @ nn.functional.normalize(texts).T


model = Clip()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(100):
    for images, captions in DataLoader(Captioned(), batch_size=9, shuffle=True, drop_last=True):
        logits = model(images, captions)
        right = torch.arange(len(images))
        loss = (nn.functional.cross_entropy(logits, right) + nn.functional.cross_entropy(logits.T, right)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(images))
