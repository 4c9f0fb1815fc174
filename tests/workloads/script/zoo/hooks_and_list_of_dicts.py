"""A trainer with hooks and a storage, an endless sampler, and batches that are lists of dicts."""

import time
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler
from truth import step


class EndlessSampler(Sampler):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        while True:
            yield from torch.randperm(self.length).tolist()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 8, 3, padding=1)
        self.boxes, self.scores = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, inputs):
        time.sleep(0.005)
        features = torch.stack([self.backbone(i["image"][None]).relu().mean((2, 3))[0] for i in inputs])
        found = torch.stack([i["instances"].mean(0) for i in inputs])
        return {"box": (self.boxes(features) - found).abs().mean(), "score": self.scores(features).sigmoid().mean()}


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model, self.optimizer, self.batches = model, optimizer, iter(loader)
        self.storage, self.after_step = defaultdict(list), []

    def train(self, start, stop):
        for self.iteration in range(start, stop):
            losses = self.model(next(self.batches))
            self.optimizer.zero_grad()
            sum(losses.values()).backward()
            self.optimizer.step()
            for hook in self.after_step:
                hook(self, losses)


images = [{"image": torch.rand(3, 8 + i % 3, 10), "instances": torch.rand(1 + i % 4, 4)} for i in range(50)]
model = Detector()
loader = DataLoader(images, batch_size=6, sampler=EndlessSampler(50), collate_fn=lambda batch: batch, drop_last=True)
trainer = Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=0.01))
trainer.after_step.append(lambda t, losses: t.storage["loss"].append(sum(losses.values()).item()))
trainer.after_step.append(lambda t, losses: step(6))
trainer.train(0, 1000)
