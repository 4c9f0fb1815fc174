"""The part of one rank in a run of a user-defined training function: what is measured, and what it may report."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from dmls_ray.records.metrics import RETURNABLE, RETURNABLE_PER_EPOCH, is_loss
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import Reported, part_of
from dmls_ray.records.run_events import EpochEnded, Progress
from dmls_ray.training.clocks import PhaseClock
from dmls_ray.training.marks import device_name, synchronize
from dmls_ray.training.memory import MemoryMeter, UtilizationSampler
from dmls_ray.training.observed.observer import ObservedSteps
from dmls_ray.training.process import prepare_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.base import Workload, check_data
from dmls_ray.workloads.user_function.ray_loop import call_loop, takes_rank
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, UserFunctionWorkload, load_function


def run_user_function(
    config: UserFunctionConfig,
    rank: RankInfo,
    emit: Emit,
    *,
    workload: Workload | None = None,
    load: Callable[[UserFunctionConfig], tuple[Callable[..., Any], type | None]] = load_function,
) -> dict[str, Any]:
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
    device = torch.device(rank.device)
    rank = check_data(workload or UserFunctionWorkload(config.train), config, rank)
    clock = PhaseClock(device, rank.assigned_at, rank.instruments_s)
    with clock.phase("setup_s"):
        prepare_process(config, rank)
        memory = MemoryMeter(device)
        train, config_class = load(config)
        given = config.for_function(config_class)
    steps = ObservedSteps(rank, emit, clock)
    rank = replace(rank, counter=steps.count_work)
    # What precedes a report, as a test of the model, is in no forward pass.
    reported = Reported(taken=config.canonical())
    reporter = _Reporter(rank, emit, clock, reported, on_report=steps.leave_out)
    returned: Any = None
    with UtilizationSampler(device) as utilization, steps.counted(), contextlib.suppress(Stopped):
        if takes_rank(train):
            returned = train(given, rank, reporter.emit)
        else:
            returned = call_loop(train, given, rank, reporter.emit)
    result = reported.read(returned, RETURNABLE)
    del returned
    synchronize(device)
    total_s = clock.total_s
    measured_memory = memory.read()
    with clock.untimed():
        agreed = steps.agreement.read_optimizers() if steps.agreement is not None else {}
    diverged = reporter.not_finite or _not_finite(result)
    return {
        "outcome": (Outcome.DIVERGED if diverged else Outcome.OK).value,
        "reason": f"{diverged} is not finite" if diverged else "",
        "setup_s": clock.seconds["setup_s"],
        "total_s": total_s,
        "instruments_s": clock.instruments_s,
        **steps.ledger.times(),
        **steps.timer.power.read(),
        **steps.ledger.rates(),
        "sample_digests": steps.ledger.digests(),
        **measured_memory,
        "no_tensor_mem": "a user-defined training function has no step that can be repeated after it",
        **agreed,
        **utilization.read(),
        "run": {
            "device": device_name(device),
            "backend": rank.backend or "",
            "steps": steps.count,
            **steps.ledger.facts(),
            "stopped_epoch": reporter.stopped_epoch,
            "epochs": [epoch.values for epoch in reporter.epochs],
            "not_recorded": reported.left_out,
            **result,
        },
    }


class Stopped(BaseException):
    """Raised in the user's function by `emit` when a search stops the run; `except Exception` does not catch it."""


class _Reporter:
    """What the function reports while it runs."""

    def __init__(
        self, rank: RankInfo, emit: Emit, clock: PhaseClock, reported: Reported, *, on_report: Callable[[], None]
    ) -> None:
        self._rank, self._emit, self._clock, self._on_report = rank, emit, clock, on_report
        self._reported = reported
        self.epochs: list[EpochRecord] = []
        self.not_finite = ""
        self.stopped_epoch: int | None = None

    def emit(self, event: Mapping[str, Any]) -> None:
        """The `emit` that the function is given.

        Raises:
            ValueError: the event is no dict, or its kind is unknown.
            Stopped: the run is to end here.
        """
        self._on_report()
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
        values = self._reported.read({"epoch": following, **named}, {*RETURNABLE_PER_EPOCH, "epoch"})
        number = values.pop("epoch", None)
        number = following if number is None else int(number)
        values["ended_s"] = self._clock.total_s
        epoch = part_of({"epoch": number, **values}, EpochRecord, "an emitted epoch")
        self.epochs.append(epoch)
        if (wrong := _not_finite(values)) and not self.not_finite:
            self.not_finite = f"{wrong} of epoch {number}"
        reports = self._rank.rank == 0 or self._rank.prunable
        if self._emit(EpochEnded(epoch=epoch) if reports else Progress()) is False:
            self.stopped_epoch = number
            raise Stopped


def _not_finite(values: Mapping[str, Any]) -> str:
    """The name of the first loss that is not finite; empty if all are."""
    losses = ((name, value) for name, value in values.items() if is_loss(name) and isinstance(value, float))
    return next((name for name, value in losses if not math.isfinite(value)), "")
