"""`StepLosses`: the losses of backward passes, by optimizer step."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from torch import Tensor

_READ_AT = 256
"""Steps after which losses are read, which waits for a GPU: until then each is a tensor there."""
_EARLY_STEPS = 3
"""Steps whose losses say whether two runs train the same: the later ones follow from updates."""
KEPT_STEPS = 1000
"""Steps whose losses a record keeps, in about 20 bytes each."""


class StepLosses:
    """The loss of each optimizer step, over its backward passes."""

    def __init__(self) -> None:
        self._of_step: list[Tensor | float] = []
        self._unread: list[list[Tensor | float]] = []
        self._read: list[float | None] = []
        self.passes: list[int] = []
        """Backward passes of each step."""
        self._unscaled: tuple[int, Any] = (0, None)
        """The scaled loss, by its id, and the loss."""

    def loss_scaled(self, loss: Any, scaled: Any) -> None:
        """A `GradScaler` has scaled a loss."""
        self._unscaled = (id(scaled), loss)

    def backward_began(self, roots: Any, weights: Any = None) -> None:
        """A backward pass begins with a tensor, or with several, and with what their gradients are multiplied by."""
        roots = [roots] if isinstance(roots, Tensor) else roots
        weights = [weights] if isinstance(weights, Tensor) else weights or [None] * len(roots)
        losses: list[Tensor] = []
        for root, weight in zip(roots, weights, strict=True):
            if not isinstance(root, Tensor):
                return
            scaled, loss = self._unscaled
            loss = (loss if scaled == id(root) else root).detach()
            losses.append(loss if weight is None else (loss * weight).sum())
        if not losses or any(loss.numel() != 1 for loss in losses):
            return
        loss, *others = losses
        for other in others:
            loss = loss + other
        # Others, as those of several ranks, may have to be asked for their value on all ranks.
        is_here = type(loss) is Tensor and loss.is_cpu
        self._of_step.append(loss.item() if is_here else loss)

    def step_ended(self) -> None:
        """The step under way has ended."""
        self._unread.append(self._of_step)
        self.passes.append(len(self._of_step))
        self._of_step = []
        if len(self._unread) >= _READ_AT:
            _ = self.of_steps

    @property
    def of_steps(self) -> list[float | None]:
        """The loss of each step; None where a root of a backward pass is no number. Waits for the device."""
        for step in self._unread:
            losses = [float(loss) for loss in step]
            self._read.append(math.fsum(losses) / len(losses) if losses else None)
        self._unread = []
        return self._read

    @property
    def early(self) -> float | None:
        """The mean loss of the first steps."""
        known = [loss for loss in self.of_steps[:_EARLY_STEPS] if loss is not None]
        return fmean(known) if known else None
