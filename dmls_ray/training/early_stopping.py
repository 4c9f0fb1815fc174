"""Early stopping: when a metric has not improved for some epochs, and which epoch was best."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.training_metrics import minimizes
from dmls_ray.training.process import Collective


class EarlyStopping:
    """Watches one metric; keeps the weights of the best epoch.

    Args:
        config: early_stopping names the metric, patience how many epochs may pass without improvement.
        everyone: rank 0 decides for all, so that no rounding on another machine parts the ranks.
    """

    def __init__(self, config: TrainingConfig, everyone: Collective) -> None:
        self._metric = "" if config.early_stopping == "off" else config.early_stopping
        self._patience = config.patience
        self._everyone = everyone
        self._best: float | None = None
        self._weights: dict[str, Tensor] = {}
        self.best_epoch: int | None = None

    def observe(self, epoch: EpochRecord, model: nn.Module) -> bool:
        """Take in an epoch; returns whether the run is to stop."""
        if not self._metric:
            return False
        improved, stop = self._everyone.from_first([self._improves(epoch), self._is_out_of_patience(epoch)])
        if improved:
            self._best, self.best_epoch = getattr(epoch, self._metric), epoch.epoch
            self._weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return bool(stop)

    def restore(self, model: nn.Module) -> None:
        """Give the model the weights of its best epoch."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state(self) -> dict[str, Any]:
        """All that the next decision depends on."""
        return {"best": self._best, "best_epoch": self.best_epoch, "weights": self._weights}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._best, self.best_epoch, self._weights = state["best"], state["best_epoch"], state["weights"]

    def _improves(self, epoch: EpochRecord) -> bool:
        value = getattr(epoch, self._metric)
        if self._best is None:
            return True
        return bool(value < self._best if minimizes(self._metric) else value > self._best)

    def _is_out_of_patience(self, epoch: EpochRecord) -> bool:
        return not self._improves(epoch) and epoch.epoch - (self.best_epoch or 0) >= self._patience
