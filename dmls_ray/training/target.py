"""When a run first reached its target: tested after each epoch and, where steps must be known better, within it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dmls_ray.records.model import EpochRecord
from dmls_ray.training.task import TrainingTask


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
