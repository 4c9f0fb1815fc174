"""Seeds: one for each purpose, so that no two of them draw the same numbers."""

from __future__ import annotations

import random

import numpy as np
import torch

HOLD_OUT, AUGMENTATION = 1, 2
"""What random numbers are drawn for, as a part of `mixed_seed`."""


def mixed_seed(*numbers: int) -> int:
    """A seed of 32 bits, as many as PyTorch's generator heeds, that follows from all of the numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def seed_process(seed: int) -> None:
    """Seed all generators of this process."""
    torch.manual_seed(seed)
    seed_worker(seed)


def seed_worker(seed: int) -> None:
    """Seed the generators of a process that has no business with GPUs: theirs cost a hundred times as much."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
