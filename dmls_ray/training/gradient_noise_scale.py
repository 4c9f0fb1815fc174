"""The gradient noise scale: how large a batch may be before its gradients stop getting better.

McCandlish et al., arXiv 1812.06162, appendix A.1: with gradients of a small and a large batch, b and B,

    |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b)        tr(S) = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)

are unbiased, and the simple noise scale is tr(S) / |G|^2, in samples. The small batch is one rank's in one pass, the
large one is the whole step's; both gradients are at hand in any run that averages, so only their norms cost anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.sharding import MicroBatch


class NoiseMeter:
    """Adds up squared norms of local and of averaged gradients, on the device, over the steps of full size."""

    def __init__(self, config: TrainingConfig, device: torch.device) -> None:
        assert config.batch_per_rank is not None
        assert config.global_batch is not None
        self._small_batch, self._large_batch = config.batch_per_rank, config.global_batch
        self._accumulates = config.accum_steps > 1
        self._samples_per_step = config.batch_per_rank * config.accum_steps
        # Squared norms of the small and of the large batch, and how many of each.
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        self._step = torch.zeros((), dtype=torch.float64, device=device)
        self._loss_scale: Tensor | float = 1.0
        self._local: MicroBatch | None = None
        """The micro-batch whose gradients are those of the small batch."""
        self._counted = 0
        """Samples of this rank in the current step; less than the full step if a pass was short."""

    def begin_pass(self, micro_batch: MicroBatch, loss_scale: Tensor | float) -> None:
        """A pass is about to run.

        Args:
            micro_batch: its samples.
            loss_scale: factor of the loss by the gradient scaler.
        """
        if self._local is None:
            self._local, self._counted = micro_batch, 0
            self._step.zero_()
        self._counted += micro_batch.count
        self._loss_scale = loss_scale

    def end_pass(self, parameters: Iterable[nn.Parameter], micro_batch: MicroBatch) -> None:
        """Measure the local gradients after the first pass of a step that does not reduce."""
        if self._accumulates and micro_batch is self._local:
            self._add_local(_squared_norm(parameters))

    def add_averaged(self, parameters: Iterable[nn.Parameter]) -> None:
        """Measure the averaged gradients of the step, unscaled; ends the step."""
        if self._counted == self._samples_per_step:
            norms = torch.stack([self._step, _squared_norm(parameters)])
            # A step that the scaler skips has infinite norms.
            self._sums += torch.where(norms.isfinite().all(), torch.cat([norms, torch.ones_like(norms[:1])]), 0.0)
        self._local = None

    def read(self, sum_over_ranks: Callable[[Sequence[float]], list[float]]) -> float | None:
        """The noise scale in samples, over all ranks so far; None if noise hides the gradient.

        Args:
            sum_over_ranks: sums values over all ranks.
        """
        small, large, count = sum_over_ranks(self._sums.tolist())
        if not count:
            return None
        b, B = self._small_batch, self._large_batch
        small, large = small / count, large / count
        gradient = (B * large - b * small) / (B - b)
        noise = (small - large) / (1 / b - 1 / B)
        return noise / gradient if gradient > 0 and noise > 0 else None

    def state(self) -> list[float]:
        """The sums, for a checkpoint."""
        sums: list[float] = self._sums.tolist()
        return sums

    def restore(self, state: Sequence[float]) -> None:
        """Continue from `state`."""
        self._sums = torch.tensor(state, dtype=torch.float64, device=self._sums.device)

    def hook(self, inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """A DDP communication hook that measures a bucket and passes it on."""

        def measured(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations and does not accept strings
            # With accumulation `end_pass` measures; and outside of a step, compilation warms up the model.
            if self._local is not None and not self._accumulates:
                self._add_local(bucket.buffer().double().square().sum())
            return inner(state, bucket)

        return measured

    def _add_local(self, squared: Tensor) -> None:
        assert self._local is not None
        # The loss of the pass is summed and weighted; this is the gradient of its mean loss.
        self._step += squared / (self._local.scale * max(self._local.count, 1) * self._loss_scale) ** 2


def _squared_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.nn.utils.get_total_norm(gradients, foreach=True).double().square()
