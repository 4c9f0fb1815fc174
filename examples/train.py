"""A training script as many are: argparse, a DataLoader, and DDP under torchrun. It does not know dmls_ray.

It trains a character language model on the text of Python's help:

    python examples/train.py --epochs 1
    torchrun --nproc-per-node 2 examples/train.py --epochs 1
    dmls-ray sweep examples/train.py --batch-size 16 64 --world-size 1 2
"""

import argparse
import os
import pydoc_data.topics

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class CharLM(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.head = nn.Embedding(128, width), nn.Linear(width, 128)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, text):
        return self.head(self.gru(self.embed(text))[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32, help="sequences of a rank")
    parser.add_argument("--context", type=int, default=64, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=128, help="units of the model")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(args.seed)

    text = "".join(pydoc_data.topics.topics.values())[:300_000]
    sequences = torch.tensor([min(ord(letter), 127) for letter in text]).unfold(0, args.context + 1, args.context)
    sampler = DistributedSampler(sequences, world_size, int(os.environ.get("RANK", "0")), seed=args.seed)
    loader = DataLoader(sequences, args.batch_size, sampler=sampler, drop_last=True)

    model = CharLM(args.width)
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")

    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
