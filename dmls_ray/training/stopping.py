"""What ends a run before its last epoch: a metric that no longer improves, or a target that is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.metrics import BY_NAME
from dmls_ray.records.model import EpochRecord
from dmls_ray.training.process import Collective
from dmls_ray.training.task import TrainingTask


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


class Target:
    """Watches the tests of a run for the first that reaches the target.

    A test within an epoch is an instrument: no time of the run contains it.

    Args:
        task: says what reaches the target, and how many tests an epoch has.
        steps_per_epoch: optimizer steps of an epoch.
        elapsed_s: seconds since the run was assigned, the same on all ranks, which call it together.
    """

    def __init__(self, task: TrainingTask, steps_per_epoch: int, elapsed_s: Callable[[], float]) -> None:
        self._task, self._steps_per_epoch, self._elapsed_s = task, steps_per_epoch, elapsed_s
        tests = task.target_tests
        # The last test of an epoch is the one that every run has.
        self._within = {round(place * steps_per_epoch / tests) for place in range(1, tests)} - {0, steps_per_epoch}
        self.reached: dict[str, Any] = {}
        """The epoch, the steps and the seconds of the first test that reached the target; empty before it."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return self.reached

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.reached = state

    @property
    def ends_run(self) -> bool:
        """Whether training ends after this epoch."""
        return self._task.stops_at_target and bool(self.reached)

    def is_due(self, step: int) -> bool:
        """Whether to test within an epoch after this number of its optimizer steps."""
        return step in self._within and not self.reached

    def observe(self, tested: EpochRecord, step: int) -> None:
        """Compare the result of a test with the target.

        Args:
            tested: the number of the epoch, and its metrics by this test.
            step: optimizer steps of the epoch so far.
        """
        if not self.reached and self._task.reached_target(tested):
            steps = (tested.epoch - 1) * self._steps_per_epoch + step
            self.reached = {"target_epoch": tested.epoch, "target_steps": steps, "target_s": self._elapsed_s()}
