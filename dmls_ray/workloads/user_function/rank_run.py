"""The part of one rank in a run of a user-defined training function: what is measured, and what it may report."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, Progress
from dmls_ray.records.training_metrics import RETURNABLE, RETURNABLE_PER_EPOCH, is_loss
from dmls_ray.records.validation import DEEPEST, check_picture
from dmls_ray.training.clocks import MemoryMeter, PhaseClock, StepTimer, device_name, synchronize
from dmls_ray.training.process import prepare_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.utilization import UtilizationSampler
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, load_function

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
    clock = PhaseClock(device, rank.assigned_at)
    with clock.phase("setup_s"):
        prepare_process(config, rank)
        memory = MemoryMeter(device)
        train, config_class = load(config)
        given = config.for_function(config_class)
    reporter = _Reporter(rank, emit)
    steps = _Steps(device, emit)
    returned: dict[str, Any] = {}
    with UtilizationSampler(device) as utilization, steps.counted(), contextlib.suppress(Stopped):
        returned = _returned_values(train(given, rank, reporter.emit) or {})
    synchronize(device)
    total_s = clock.total_s
    diverged = reporter.not_finite or _not_finite(returned)
    return {
        "outcome": (Outcome.DIVERGED if diverged else Outcome.OK).value,
        "reason": f"{diverged} is not finite" if diverged else "",
        "setup_s": clock.seconds["setup_s"],
        "total_s": total_s,
        **steps.timer.percentiles(),
        **memory.read(),
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
    """Counts and times optimizer steps, whatever the optimizer; each is a sign of progress."""

    def __init__(self, device: torch.device, emit: Emit) -> None:
        self.timer = StepTimer(device, _WARMUP_STEPS)
        self.count = 0
        self._emit = emit

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.timer.begin_epoch()
        handle = register_optimizer_step_post_hook(self._step)
        try:
            yield
        finally:
            handle.remove()
            self.timer.end_epoch()

    def _step(self, *_: Any) -> None:
        self.count += 1
        self.timer.step()
        self._emit(Progress())


def _returned_values(values: Any) -> dict[str, Any]:
    """What the function returned as plain values, after a check of its picture.

    Raises:
        ValueError: as by `plain_values`; or the picture is not a small JPEG in base64.
    """
    what = "what it returned"
    picture = values.get("picture") if isinstance(values, Mapping) else None
    # Before the other values, since their error message would contain the whole picture.
    if picture is not None and not isinstance(picture, str):
        kind = type(picture).__name__
        raise ValueError(f"picture in {what} is of type {kind}; give base64.b64encode(jpeg).decode().")
    if picture is not None:
        check_picture(f"picture in {what}", picture)
    return plain_values(values, what)


def plain_values(values: Any, what: str) -> dict[str, Any]:
    """The values as plain ones: tensors and numpy's scalars of one element become numbers.

    Raises:
        ValueError: a value is not plain, or the value of a metric that tables have is not a number.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} is a {type(values).__name__}; give a dict of plain values.")
    return {str(name): _plain(str(name), value, what) for name, value in values.items()}


def _plain(name: str, value: Any, what: str, depth: int = 0) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"{name} in {what} has more than {DEEPEST} lists and dicts within one another; give fewer.")
    if hasattr(value, "item") and getattr(value, "size", None) is not None:
        count = value.numel() if isinstance(value, torch.Tensor) else value.size
        if count != 1:
            raise ValueError(f"{name} in {what} has {count} elements; give one number, or .tolist().")
        value = value.item()
    if name in RETURNABLE and (isinstance(value, bool) or not isinstance(value, int | float | None)):
        raise ValueError(f"{name}={value!r} in {what} is no number.")
    if isinstance(value, list | tuple):
        return [_plain(name, item, what, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(str(key), item, what, depth + 1) for key, item in value.items()}
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError(f"{name} in {what} has more than 64 bits; give a float.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{name}={value!r} in {what} is no plain value; give numbers, texts, lists or dicts of them.")


def _not_finite(values: Mapping[str, Any]) -> str:
    """The name of the first loss that is not finite; empty if all are."""
    losses = ((name, value) for name, value in values.items() if is_loss(name) and isinstance(value, float))
    return next((name for name, value in losses if not math.isfinite(value)), "")
