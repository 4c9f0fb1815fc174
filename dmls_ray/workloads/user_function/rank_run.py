"""The part of one rank in a run of a user-defined training function: what is measured, and what it may report."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dmls_ray.records.metrics import RETURNABLE, RETURNABLE_PER_EPOCH, is_loss
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import Reported, part_of
from dmls_ray.records.run_events import EpochEnded, Progress
from dmls_ray.training.clocks import PhaseClock, StepTimer, device_name, synchronize
from dmls_ray.training.compat import after_each, around_backward_passes, around_loader_waits, is_profiling
from dmls_ray.training.ddp import DDPTimers, with_exposed
from dmls_ray.training.further_steps import traced
from dmls_ray.training.memory import MemoryMeter, UtilizationSampler
from dmls_ray.training.optimizers import around_optimizer_steps
from dmls_ray.training.process import prepare_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_agreement import AgreementMeter
from dmls_ray.workloads.base import Workload, check_data
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, UserFunctionWorkload, load_function

WARMUP_STEPS = 5
"""First optimizer steps that count in no percentile; as the built-in trial's default."""

_TRACED_AFTER = 2
"""Steps before those that are traced: up to the end of the warm-up, so that no rate contains the work of a profiler."""

_READ_EVERY = 10
"""Interval in steps at which DDP's timers are read after the first ones: the function's models are gone at its end, and
reading takes about 10 microseconds."""

_WITHOUT_BACKWARD = ("data_wait_ms", "optimizer_ms", "rest_ms")
"""Parts of a step that are known without a backward pass."""


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
    steps = FunctionSteps(rank, emit, clock)
    # What precedes a report, as a test of the model, is in no forward pass.
    reported = Reported(taken=config.canonical())
    reporter = _Reporter(rank, emit, clock, reported, on_report=steps.leave_out)
    returned: Any = None
    with UtilizationSampler(device) as utilization, steps.counted(), contextlib.suppress(Stopped):
        returned = train(given, rank, reporter.emit)
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
        **steps.timer.percentiles(),
        **steps.parts_ms(),
        **measured_memory,
        "no_tensor_mem": "a user-defined training function has no step that can be repeated after it",
        **agreed,
        "utilization": utilization.series,
        "run": {
            "device": device_name(device),
            "backend": rank.backend or "",
            "steps": steps.count,
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


class FunctionSteps:
    """Counts and times optimizer steps as `around_optimizer_steps` does; each is a sign of progress.

    Args:
        rank: this rank.
        emit: takes the signs of progress.
        clock: leaves the work of `agreement` and of a trace out of the times of the run.
        warmup_steps: first steps that count in no percentile, at most.
    """

    def __init__(self, rank: RankInfo, emit: Emit, clock: PhaseClock, warmup_steps: int = WARMUP_STEPS) -> None:
        self.timer = StepTimer(torch.device(rank.device), warmup_steps, on_warm=self._count_from_here)
        self.count = 0
        # It keeps the parameters of optimizers that the function no longer needs.
        self.agreement = AgreementMeter() if rank.world_size > 1 else None
        self._rank, self._untimed, self._emit = rank, clock.untimed, emit
        self._tracing = ExitStack()
        self._backward_depth = 0
        """Backward passes under way; checkpointed activations are computed by one within another."""
        self._has_backward = False
        self._models: list[DDPTimers] = []

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While the context lasts, steps and their parts are measured."""
        self.timer.begin_epoch()
        try:
            with (
                around_optimizer_steps(self.leave_out, self._step),
                around_loader_waits(self.leave_out, self._loaded),
                around_backward_passes(self._begin_backward, self._end_backward),
                after_each(DistributedDataParallel, lambda ddp: self._models.append(DDPTimers(ddp))),
            ):
                yield
        finally:
            with self._untimed():
                self._tracing.close()
            self.timer.end_epoch()

    def leave_out(self, *_: Any) -> None:
        """What the function did since the last mark is neither computation of a step nor a wait for data."""
        self.timer.phases.after("rest")

    def _loaded(self, batch: Any) -> None:
        self.timer.phases.after("data_wait")

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of the parts of a counted step, and of its communication under DDP.

        Without a backward pass that was seen, what precedes the optimizer is in `rest_ms` alone.
        """
        communication = self._communication_ms()
        parts = self.timer.phases.parts_ms(communication.get("exposed_comm_ms", 0.0))
        seen = parts if self._has_backward else {name: parts[name] for name in parts if name in _WITHOUT_BACKWARD}
        return {**communication, **seen} if parts else {}

    def _communication_ms(self) -> dict[str, float]:
        """Milliseconds of an optimizer step, over all models that were under DDP; empty without."""
        steps = len(self.timer.step_ms)
        sums = {"comm_ms": 0.0, "overlap_ms": 0.0}
        for model in self._models:
            for name, ms in model.pass_ms().items():
                sums[name] += ms * model.passes
        return with_exposed({name: ms / steps for name, ms in sums.items()}) if steps else {}

    def _count_from_here(self) -> None:
        for model in self._models:
            model.count_from_here()

    def _begin_backward(self, roots: Any, *_: Any, **__: Any) -> None:
        if not self._backward_depth:
            self._has_backward = True
            self.timer.phases.after("forward")
        self._backward_depth += 1

    def _end_backward(self, _: Any) -> None:
        self._backward_depth -= 1
        if not self._backward_depth:
            self.timer.phases.after("backward")

    def _end_timed_step(self) -> None:
        self.timer.step()

    def _step(self, optimizer: Optimizer) -> None:
        self.count += 1
        # Two profiles at once are impossible, and the function may have begun one.
        if self.count == _TRACED_AFTER and self._rank.is_traced and not is_profiling():
            with self._untimed():
                self._tracing.enter_context(traced(self._rank))
        elif self.count == WARMUP_STEPS:
            with self._untimed():
                self._tracing.close()
        self.timer.phases.after("optimizer")
        self._end_timed_step()
        if self.count <= 2 * _READ_EVERY or self.count % _READ_EVERY == 0:
            for model in self._models:
                model.read()
        if self.agreement is not None:
            self.agreement.step(optimizer)
            if self.agreement.is_due:
                with self.timer.paused(), self._untimed():
                    self.agreement.sample(optimizer)
        self._emit(Progress())
        self.leave_out()
