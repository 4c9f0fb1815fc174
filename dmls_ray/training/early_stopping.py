"""Early stopping: when a metric has not improved for some epochs, and which epoch was best."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.metrics import BY_NAME
from dmls_ray.records.model import EpochRecord
from dmls_ray.training.process import Collective


class EarlyStopping:
    """Watches one metric and keeps the weights of the best epoch.

    Args:
        config: early_stopping names the metric, patience the allowed epochs without improvement.
        collective: rank 0 decides for all ranks, since rounding may differ between machines.
    """

    def __init__(self, config: TrainingConfig, collective: Collective) -> None:
        self._metric = "" if config.early_stopping == "off" else config.early_stopping
        self._patience = config.patience
        self._collective = collective
        self._best: float | None = None
        self._weights: dict[str, Tensor] = {}
        self.best_epoch: int | None = None

    def observe(self, epoch: EpochRecord, model: nn.Module) -> bool:
        """Compare an epoch with the best one; returns whether the run must stop."""
        if not self._metric:
            return False
        value = epoch.metrics[self._metric]
        less_is_better = BY_NAME[self._metric].direction == "min"
        improves = self._best is None or (value < self._best if less_is_better else value > self._best)
        is_out_of_patience = not improves and epoch.epoch - (self.best_epoch or 0) >= self._patience
        improved, stop = self._collective.from_first([improves, is_out_of_patience])
        if improved:
            self._best, self.best_epoch = value, epoch.epoch
            self._weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return bool(stop)

    def load_best(self, model: nn.Module) -> None:
        """Load the weights of the best epoch into the model."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state(self) -> dict[str, Any]:
        """All that the next decision depends on."""
        return {"best": self._best, "best_epoch": self.best_epoch, "weights": self._weights}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._best, self.best_epoch, self._weights = state["best"], state["best_epoch"], state["weights"]
