"""The part of one rank in a run of a user-defined training function: what is measured, and what it may report."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

from dmls_ray.records.metrics import RETURNABLE, RETURNABLE_PER_EPOCH, is_loss
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import part_of
from dmls_ray.records.run_events import EpochEnded, Progress, RankResult
from dmls_ray.training.observed.observed_run import ObservedRun, not_finite
from dmls_ray.training.observed.observer import ObservedSteps
from dmls_ray.training.process import prepare_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_meter import RankMeter
from dmls_ray.workloads.base import Workload, check_data
from dmls_ray.workloads.user_function.ray_loop import call_loop
from dmls_ray.workloads.user_function.schema import (
    UserFunctionConfig,
    UserFunctionWorkload,
    load_function,
    takes_rank,
)


def run_user_function(
    config: UserFunctionConfig,
    rank: RankInfo,
    emit: Emit,
    *,
    workload: Workload | None = None,
    load: Callable[[UserFunctionConfig], tuple[Callable[..., Any], type | None]] = load_function,
) -> RankResult:
    """Call a training function on this rank; `emit` and the result are as those of `run_training`.

    The process is set up as for any run: seeded (the same on all ranks), its threads set, its device current. Memory,
    the time of the run, and the time between optimizer steps are measured around it.

    Args:
        config: the configuration of the run.
        rank: this rank.
        emit: receives progress and epochs.
        workload: says which data the run reads; by default, that of any function.
        load: returns the function and the dataclass of its configuration. Loading counts as set-up.

    Raises:
        UnknownNameError, UserCodeError: the function cannot be found here.
        Exception: whatever the function raises.
    """
    check_data(workload or UserFunctionWorkload(config.train), config, rank)
    meter = RankMeter(rank)
    with meter.clock.phase("setup_s"):
        prepare_process(config, rank)
        meter.begin_memory()
        train, config_class = load(config)
        given = config.for_function(config_class)
    steps = ObservedSteps(meter, emit)
    observed = ObservedRun(steps, taken=config.canonical())
    reporter = _Reporter(rank, emit, observed)
    function = train if takes_rank(train) else functools.partial(call_loop, train)
    returned: Any = None
    with meter, steps.counted(), contextlib.suppress(Stopped):
        returned = function(given, rank, reporter.emit)

    result = observed.result(returned, RETURNABLE)
    result.run.epochs = reporter.epochs
    result.run.add({"stopped_epoch": reporter.stopped_epoch})
    result.reason = not_finite([*reporter.losses, *_losses_in(result.run.reported)])
    if result.reason:
        result.outcome = Outcome.DIVERGED
    return result


class Stopped(BaseException):
    """Raised in the user's function by `emit` when a search stops the run; `except Exception` does not catch it."""


class _Reporter:
    """What the function reports while it runs."""

    def __init__(self, rank: RankInfo, emit: Emit, observed: ObservedRun) -> None:
        self._rank = rank
        self._emit = emit
        self._observed = observed
        self.epochs: list[EpochRecord] = []
        self.losses: list[tuple[str, float]] = []
        """The losses of all epochs, by what they are called in a reason."""
        self.stopped_epoch: int | None = None

    def emit(self, event: Mapping[str, Any]) -> None:
        """The `emit` that the function is given.

        Raises:
            ValueError: the event is no dict, or its kind is unknown.
            Stopped: the run is to end here.
        """
        # What precedes a report, as a test of the model, is in no forward pass.
        self._observed.steps.leave_out()
        if not isinstance(event, Mapping):
            raise ValueError(f"emit was given a value of type {type(event).__name__}; give a dict of values by name.")
        kind = event.get("kind", "epoch")
        if kind not in ("epoch", "progress"):
            raise ValueError(f"kind={kind!r} is no kind of event; emit an epoch's values, or {{'kind': 'progress'}}.")
        if kind == "progress":
            self._emit(Progress())
            return
        named = {name: value for name, value in event.items() if name != "kind"}
        following = len(self.epochs) + 1
        values = self._observed.reported.read({"epoch": following, **named}, {*RETURNABLE_PER_EPOCH, "epoch"})
        number = values.pop("epoch", None)
        number = following if number is None else int(number)
        values["ended_s"] = self._observed.steps.meter.clock.total_s
        epoch = part_of({"epoch": number, **values}, EpochRecord, "an emitted epoch")
        self.epochs.append(epoch)
        self.losses += [(f"{name} of epoch {number}", loss) for name, loss in _losses_in(values)]
        reports = self._rank.rank == 0 or self._rank.prunable
        if self._emit(EpochEnded(epoch=epoch) if reports else Progress()) is False:
            self.stopped_epoch = number
            raise Stopped


def _losses_in(values: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The losses among values, with their names."""
    return [(name, value) for name, value in values.items() if is_loss(name) and isinstance(value, float)]
