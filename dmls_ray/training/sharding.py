"""The samples of each rank in each pass.

All ranks make the same number of passes, and one optimizer step consumes the next `global_batch` samples of the epoch's
order at any world size. World size 1 with batch 4b, 2 with 2b, and 2 with b and 2 accumulation steps see the same
samples in the same step. No sample is dropped and none is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.process import HOLD_OUT, TRAIN_EVALUATION, mixed_seed
from dmls_ray.util.errors import InfeasibleError


@dataclass(frozen=True)
class MicroBatch:
    """The samples of one forward and backward pass of one rank."""

    start: int
    stop: int
    """The rank's samples are order[start:stop]; at least one."""
    count: int
    """Samples that count: stop - start, or 0 for a pass that only keeps DDP in step, which needs every rank."""
    scale: float
    """Factor of the summed loss, so that the average of the ranks' gradients is the mean over the step's samples."""
    ends_step: bool
    """Whether the optimizer steps after this pass."""


def micro_batches(samples: int, config: TrainingConfig, rank: int) -> list[MicroBatch]:
    """The micro-batches of a rank in an epoch.

    The gradient of a short last step is divided by its actual number of samples. If fewer samples than ranks are left,
    a rank without samples repeats one with weight 0.

    Args:
        samples: training samples, at least 1.
        config: gives batch_per_rank, world_size and accum_steps.
        rank: from 0.
    """
    assert config.global_batch is not None
    batches = []
    for pass_start in range(0, samples, config.samples_per_pass):
        pass_stop = min(pass_start + config.samples_per_pass, samples)
        window_start = pass_start // config.global_batch * config.global_batch
        in_window = min(config.global_batch, samples - window_start)
        share = _share(pass_stop - pass_start, config, rank)
        start = pass_start + (share.start if share else 0)
        batches.append(
            MicroBatch(
                start=start,
                stop=start + max(len(share), 1),
                count=len(share),
                # DDP averages the ranks' gradients, hence x world_size.
                scale=config.world_size / in_window if share else 0.0,
                ends_step=pass_stop == samples or pass_stop % config.global_batch == 0,
            )
        )
    return batches


def check_batch(samples: int, config: TrainingConfig) -> None:
    """Refuse a batch that the data do not fill: its numbers would be those of a smaller one.

    Raises:
        InfeasibleError: there are fewer training samples than global_batch.
    """
    assert config.global_batch is not None
    if samples < config.global_batch:
        raise InfeasibleError(
            f"global_batch={config.global_batch} is larger than the training set of {samples} samples; lower "
            "batch_per_rank, accum_steps or world_size, or use more data."
        )


def steps_per_epoch(samples: int, config: TrainingConfig) -> int:
    """Optimizer steps of an epoch."""
    assert config.global_batch is not None
    return -(-samples // config.global_batch)


def epoch_order(samples: int, config: TrainingConfig, epoch: int) -> Tensor:
    """The order of the samples of an epoch, int64, equal on all ranks: a permutation by seed and epoch, or sorted."""
    if not config.shuffle:
        return torch.arange(samples)
    # Not seed + epoch: seed s in epoch e + 1 would have the order of seed s + 1 in epoch e.
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + epoch)
    return torch.randperm(samples, generator=generator)


def hold_out(samples: int, config: TrainingConfig) -> tuple[Tensor, Tensor]:
    """Indices (int64) of the samples to train on and to validate on, both in ascending order.

    Raises:
        ConfigError: the validation share leaves no sample for one of them.
    """
    count = config.held_out(samples)
    if not count:
        return torch.arange(samples), torch.arange(0)
    generator = torch.Generator().manual_seed(mixed_seed(config.seed, HOLD_OUT))
    order = torch.randperm(samples, generator=generator)
    return order[count:].sort().values, order[:count].sort().values


def train_evaluation_samples(samples: int, count: int, config: TrainingConfig) -> Tensor:
    """Which training samples the trained model is evaluated on: `count` of them at random, or all, in ascending order.

    The choice depends on the seed alone.
    """
    generator = torch.Generator().manual_seed(mixed_seed(config.seed, TRAIN_EVALUATION))
    return torch.randperm(samples, generator=generator)[:count].sort().values


def evaluation_shards(samples: int, config: TrainingConfig, rank: int) -> list[slice]:
    """Slices of the samples of a split: each sample is on exactly one rank; a rank may have none.

    Samples are dealt to the ranks in turn: of a split that is sorted by class, each rank has all classes.
    """
    size = config.test_batch_per_rank or config.batch_per_rank
    assert size is not None
    stride = size * config.world_size
    starts = range(rank, samples, stride)
    return [slice(start, min(start + stride, samples), config.world_size) for start in starts]


def _share(samples: int, config: TrainingConfig, rank: int) -> range:
    """The samples of a rank; if they do not divide evenly, the first ranks have one more."""
    size, extra = divmod(samples, config.world_size)
    start = rank * size + min(rank, extra)
    return range(start, start + size + (rank < extra))
