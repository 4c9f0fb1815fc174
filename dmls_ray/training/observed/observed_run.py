"""`ObservedRun`: one run of code that is observed from outside, a function or a script, and what it measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from dmls_ray.records.returned import Reported
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.model_utilization import add_utilization
from dmls_ray.training.observed.ledger import Ledger
from dmls_ray.training.observed.losses import KEPT_STEPS
from dmls_ray.training.observed.observer import ObservedSteps


class ObservedRun:
    """One rank of a run of user-defined code.

    Args:
        steps: those of the code, which are counted in the meter of the rank.
        taken: names of columns that no number of the code takes, as those of the fields.
    """

    def __init__(self, steps: ObservedSteps, taken: Collection[str]) -> None:
        self.steps = steps
        self.reported = Reported(taken)

    def result(self, values: Any, filled: Collection[str] = ()) -> RankResult:
        """What was measured and seen up to here.

        Args:
            values: what the code reported, as `Reported.read` takes it.
            filled: metrics of training that these values may fill.
        """
        reported = self.reported.read(values, filled)
        ledger = Ledger(self.steps)
        meter = self.steps.meter
        result = meter.read(with_steps=ledger.has_step_times)
        result.add(ledger.parts_ms())
        result.add(ledger.rates())
        step_ms = result.metrics.get("step_ms_mean")
        if step_ms is not None and not ledger.operations_unknown:
            with meter.clock.untimed():
                add_utilization(result, self.steps.operations.counter, step_ms, meter.device)
            result.metrics["instruments_s"] = meter.clock.instruments_s
        result.sample_digests = ledger.digests()
        result.step_losses = self.steps.losses.of_steps[:KEPT_STEPS]
        result.step_passes = self.steps.losses.passes[:KEPT_STEPS]
        result.no_tensor_mem = "user-defined code has no step that can be repeated after it"
        result.run.add({"steps": self.steps.count})
        result.run.add(ledger.facts())
        result.run.reported = reported
        result.run.not_recorded = self.reported.left_out
        return result


def not_finite(losses: Iterable[tuple[str, float | None]]) -> str:
    """That the first of these losses, with their names, is not finite; empty if all are."""
    for name, loss in losses:
        if loss is not None and not math.isfinite(loss):
            return f"{name} is not finite"
    return ""
