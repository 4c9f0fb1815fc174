"""Which samples a rank takes in which pass: exact, equal in steps on all ranks, and the same set of samples a step
at any world size.

One optimizer step consumes the next `global_batch` samples of the epoch's order, whatever the world size: world
size 1 with batch 4b, 2 with 2b, and 2 with b and 2 accumulation steps see the same samples in the same step. No
sample is dropped and
none is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.data.seeding import HOLD_OUT, mixed_seed


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of one rank."""

    start: int
    stop: int
    """The rank's own samples are order[start:stop]; at least one."""
    count: int
    """How many of them count: stop - start, or 0 where a rank only fills in, since DDP needs all ranks in every
    pass.
    """
    scale: float
    """Factor of the summed loss that makes the ranks' averaged gradients the mean over the step's samples."""
    ends_step: bool
    """Whether the optimizer steps after this pass."""


def passes_of(samples: int, config: TrainingConfig, rank: int) -> list[Pass]:
    """A rank's passes over an epoch.

    A short last window is divided by the samples that it really has. Where fewer samples than ranks are left, some
    rank has none; it repeats one with weight 0.

    Args:
        samples: training samples, at least 1.
        config: gives batch_per_rank, world_size and accum_steps.
        rank: from 0.
    """
    per_pass = config.samples_per_pass
    assert config.global_batch is not None
    passes = []
    for pass_start in range(0, samples, per_pass):
        in_pass = min(per_pass, samples - pass_start)
        window_start = pass_start // config.global_batch * config.global_batch
        in_window = min(config.global_batch, samples - window_start)
        each, extra = divmod(in_pass, config.world_size)
        count = each + (rank < extra)
        start = pass_start + rank * each + min(rank, extra) if count else pass_start
        pass_stop = pass_start + in_pass
        passes.append(
            Pass(
                start=start,
                stop=start + max(count, 1),
                count=count,
                # DDP averages the ranks' gradients, hence x world_size; a pass that only fills in weighs nothing.
                scale=config.world_size / in_window if count else 0.0,
                ends_step=pass_stop == samples or pass_stop % config.global_batch == 0,
            )
        )
    return passes


def steps_of(samples: int, config: TrainingConfig) -> int:
    """Optimizer steps an epoch."""
    assert config.global_batch is not None
    return -(-samples // config.global_batch)


def epoch_order(samples: int, config: TrainingConfig, epoch: int) -> Tensor:
    """The order of an epoch's samples, int64, equal on all ranks: a permutation from seed and epoch, or as they lie."""
    if not config.shuffle:
        return torch.arange(samples)
    # Mixed, so that seed s in epoch e + 1 is not seed s + 1 in epoch e.
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + epoch)
    return torch.randperm(samples, generator=generator)


def hold_out(samples: int, config: TrainingConfig) -> tuple[Tensor, Tensor] | None:
    """The samples to train on and those to validate on, int64 places in the training half; None where none is held out.

    Raises:
        ConfigError: the share leaves no sample for one of them.
    """
    if not config.validation_share:
        return None
    count = config.held_out(samples)
    generator = torch.Generator().manual_seed(mixed_seed(config.seed, HOLD_OUT))
    order = torch.randperm(samples, generator=generator)
    return order[count:].sort().values, order[:count].sort().values


def test_shards(samples: int, config: TrainingConfig, rank: int) -> Iterator[slice]:
    """A rank's slices of the test or validation samples: every one on exactly one rank; a rank may have none."""
    each, extra = divmod(samples, config.world_size)
    start = rank * each + min(rank, extra)
    stop = start + each + (rank < extra)
    step = config.test_batch_per_rank or config.batch_per_rank
    assert step is not None
    for low in range(start, stop, step):
        yield slice(low, min(low + step, stop))
