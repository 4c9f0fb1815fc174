"""A batch is ((x, y), (x2, y2)): pairs of labelled images, both of which are classified and compared."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Pairs(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        other = int(torch.randint(len(self), ()))
        return (self.images[index], self.labels[index]), (self.images[other], self.labels[other])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 8)
        self.classify = nn.Linear(8, 5)

    def forward(self, x):
        time.sleep(0.002)
        embedding = self.embed(x)
        return embedding, self.classify(embedding.relu())


pairs = Pairs(torch.randn(640, 16), torch.randint(5, (640,)))
loader = DataLoader(pairs, batch_size=10, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(100):
    for (x, y), (x2, y2) in loader:
        embedding, scores = model(x)
        embedding2, scores2 = model(x2)
        same = (y == y2).float() * 2 - 1
        loss = nn.functional.cosine_embedding_loss(embedding, embedding2, same)
        loss = loss + nn.functional.cross_entropy(scores, y) + nn.functional.cross_entropy(scores2, y2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(x))
