"""A character language model on the text of Python's help."""

import math
import pydoc_data.topics
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


@dataclass(frozen=True)
class Config:
    context: int = 32
    """Characters that the model sees at most."""
    width: int = 64
    batch_per_rank: int = 32
    lr: float = 3e-3
    epochs: int = 1


class CharLM(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.head = nn.Embedding(128, width), nn.Linear(width, 128)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, text):
        return self.head(self.gru(self.embed(text))[0])


def train(config: Config, rank, emit):
    text = "".join(pydoc_data.topics.topics.values())[:200_000]
    windows = torch.tensor([min(ord(c), 127) for c in text]).unfold(0, config.context + 1, config.context)
    data, test = [window for i, window in enumerate(windows) if i % 10], windows[::10]
    sampler = DistributedSampler(data, rank.world_size, rank.rank)
    model = bare = CharLM(config.width).to(rank.device)
    if rank.world_size > 1:
        model = DistributedDataParallel(bare)
    optimizer = torch.optim.Adam(model.parameters(), config.lr)

    def loss_of(model, batch):
        batch = batch.to(rank.device)
        return nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    for epoch in range(config.epochs):
        sampler.set_epoch(epoch)
        for batch in DataLoader(data, config.batch_per_rank, sampler=sampler):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        with torch.no_grad():
            test_loss = loss_of(bare, test)
        emit({"test_loss": test_loss, "bits_per_character": test_loss / math.log(2)})
    return {"parameters": sum(p.numel() for p in bare.parameters())}
