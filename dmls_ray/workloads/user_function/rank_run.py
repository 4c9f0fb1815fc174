"""The part of one rank in a run of a user-defined training function: what is measured, and what it may report."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import checked_returned, plain_values
from dmls_ray.records.run_events import EpochEnded, Progress
from dmls_ray.records.training_metrics import RETURNABLE_PER_EPOCH, is_loss
from dmls_ray.training.clocks import PhaseClock, StepTimer, device_name, synchronize
from dmls_ray.training.compat import around_loader_waits
from dmls_ray.training.memory import MemoryMeter
from dmls_ray.training.process import prepare_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_agreement import AgreementMeter
from dmls_ray.training.utilization import UtilizationSampler
from dmls_ray.workloads.data_check import check_data
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, load_function
from dmls_ray.workloads.user_function.workload import UserFunctionWorkload

_WARMUP_STEPS = 5
"""First optimizer steps that count in no percentile; as the built-in trial's default."""


def run_user_function(
    config: UserFunctionConfig,
    rank: RankInfo,
    emit: Emit,
    load: Callable[[UserFunctionConfig], tuple[Callable[..., Any], type | None]] = load_function,
) -> dict[str, Any]:
    """Call a training function on this rank; `emit` and the result are as those of `run_training`.

    The process is set up as for any run: seeded (the same on all ranks), its threads set, its device current. Memory,
    the time of the run, and the time between optimizer steps are measured around it.

    Args:
        config: the configuration of the run.
        rank: this rank.
        emit: receives progress and epochs.
        load: returns the function and the dataclass of its configuration. Loading counts as set-up.

    Raises:
        UnknownNameError, UserCodeError: the function cannot be found here.
        ValueError: a value that the function reports is no plain value.
        Exception: whatever the function raises.
    """
    device = torch.device(rank.device)
    rank = check_data(UserFunctionWorkload(config.train), config, rank)
    clock = PhaseClock(device, rank.assigned_at, rank.instruments_s)
    with clock.phase("setup_s"):
        prepare_process(config, rank)
        memory = MemoryMeter(device)
        train, config_class = load(config)
        given = config.for_function(config_class)
    reporter = _Reporter(rank, emit)
    # It keeps the parameters of optimizers that the function no longer needs.
    agreement = AgreementMeter() if rank.world_size > 1 else None
    steps = _Steps(device, emit, agreement)
    returned: dict[str, Any] = {}
    with UtilizationSampler(device) as utilization, steps.counted(), contextlib.suppress(Stopped):
        returned = checked_returned(train(given, rank, reporter.emit) or {}, "what it returned")
    synchronize(device)
    total_s = clock.total_s
    measured_memory = memory.read()
    with clock.untimed():
        agreed = agreement.read_optimizers() if agreement is not None else {}
    diverged = reporter.not_finite or _not_finite(returned)
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
            "epochs": reporter.epochs,
            "returned": returned,
        },
    }


class Stopped(BaseException):
    """Raised in the user's function by `emit` when a search stops the run; `except Exception` does not catch it."""


class _Reporter:
    """What the function reports while it runs."""

    def __init__(self, rank: RankInfo, emit: Emit) -> None:
        self._rank, self._emit = rank, emit
        self.epochs: list[dict[str, Any]] = []
        self.not_finite = ""
        self.stopped_epoch: int | None = None

    def emit(self, event: Mapping[str, Any]) -> None:
        """The `emit` that the function is given.

        Raises:
            Stopped: the run is to end here.
        """
        kind = event.get("kind", "epoch") if isinstance(event, Mapping) else "epoch"
        if kind not in ("epoch", "progress"):
            raise ValueError(f"kind={kind!r} is no kind of event; emit an epoch's values, or {{'kind': 'progress'}}.")
        if kind == "progress":
            self._emit(Progress())
            return
        values = plain_values(event, "what it emitted")
        values.pop("kind", None)
        number = values.pop("epoch", len(self.epochs) + 1)
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"epoch={number!r} in what it emitted is no whole number.")
        metrics = {name: value for name, value in values.items() if name in RETURNABLE_PER_EPOCH and value is not None}
        measures = {name: value for name, value in values.items() if name not in RETURNABLE_PER_EPOCH}
        epoch = {"epoch": number, **metrics, "measures": measures}
        self.epochs.append(epoch)
        if (wrong := _not_finite(values)) and not self.not_finite:
            self.not_finite = f"{wrong} of epoch {number}"
        reports = self._rank.rank == 0 or self._rank.prunable
        if self._emit(EpochEnded(epoch=EpochRecord(**epoch)) if reports else Progress()) is False:
            self.stopped_epoch = number
            raise Stopped


class _Steps:
    """Counts and times optimizer steps, whatever the optimizer; each is a sign of progress.

    An optimizer may step another one, as ZeRO does: that is one step. Of several optimizers each step counts.
    """

    def __init__(self, device: torch.device, emit: Emit, agreement: AgreementMeter | None) -> None:
        self.timer = StepTimer(device, _WARMUP_STEPS)
        self.count = 0
        self._agreement = agreement
        self._emit = emit
        self._outermost: Any = None
        """The optimizer whose step is under way."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.timer.begin_epoch()
        after = self.timer.phases.after
        handles = register_optimizer_step_pre_hook(self._begin), register_optimizer_step_post_hook(self._step)
        try:
            with around_loader_waits(lambda: after("rest"), lambda: after("data_wait")):
                yield
        finally:
            for handle in handles:
                handle.remove()
            self.timer.end_epoch()

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of a counted step: of waits for a DataLoader, of the optimizer, and of everything else."""
        found = self.timer.parts_ms(0.0, 0.0)
        return {name: found[name] for name in ("data_wait_ms", "optimizer_ms", "rest_ms") if name in found}

    def _begin(self, optimizer: Any, *_: Any) -> None:
        if self._outermost is None:
            self.timer.phases.after("rest")
        self._outermost = self._outermost or optimizer

    def _step(self, optimizer: Any, *_: Any) -> None:
        if optimizer is not self._outermost:
            return
        self._outermost = None
        self.count += 1
        self.timer.phases.after("optimizer")
        self.timer.step()
        if self._agreement is not None:
            self._agreement.step(optimizer)
        self._emit(Progress())


def _not_finite(values: Mapping[str, Any]) -> str:
    """The name of the first loss that is not finite; empty if all are."""
    losses = ((name, value) for name, value in values.items() if is_loss(name) and isinstance(value, float))
    return next((name for name, value in losses if not math.isfinite(value)), "")
