"""Seeds, one for each purpose, so that two purposes do not draw the same numbers."""

from __future__ import annotations

import random

import numpy as np
import torch

HOLD_OUT, AUGMENTATION = 1, 2
"""Purposes of random numbers, as an argument of `mixed_seed`."""


def mixed_seed(*numbers: int) -> int:
    """A seed that depends on all of the numbers. It has 32 bits, since PyTorch's generator ignores further bits."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def seed_process(seed: int) -> None:
    """Seed all generators of this process."""
    torch.manual_seed(seed)
    seed_worker(seed)


def seed_worker(seed: int) -> None:
    """Seed the generators of a CPU process. Seeding those of GPUs as well would take a hundred times as long."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
