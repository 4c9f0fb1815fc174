"""Clocks of one rank, as the documentation of the metrics defines them: phases of a run, and steps."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dmls_ray.records.model import STEP_QUANTILES
from dmls_ray.training.energy import PowerMeter
from dmls_ray.training.marks import elapsed_ms, marker, synchronize
from dmls_ray.training.run_clock import RunClock
from dmls_ray.training.step_phases import StepPhases

RUN_PHASES = ("setup_s", "warmup_s", "train_s", "eval_s", "checkpoint_s", "inference_s")
"""Phases that are timed. With `between_s`, the time in none of them, they add up to `total_s`."""


class PhaseClock:
    """Seconds spent in each phase of a run; a phase on a GPU ends with a device synchronisation.

    Args:
        device: the rank's device.
        run: the clock of the run.
    """

    def __init__(self, device: torch.device, run: RunClock) -> None:
        self._device = device
        self._run = run
        self._earlier_s = 0.0
        """Seconds of an earlier part of the run, which ended at a checkpoint."""
        self.seconds = dict.fromkeys(RUN_PHASES, 0.0)
        # The time before this clock was made, mostly for the process group, is set-up.
        self.seconds["setup_s"] = run.total_s

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began_s = self._run.total_s
        yield
        synchronize(self._device)
        self.seconds[name] += self._run.total_s - began_s

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """The work of an instrument: neither a phase nor the total contains it."""
        synchronize(self._device)
        with self._run.untimed():
            try:
                yield
            finally:
                synchronize(self._device)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"seconds": self.seconds, "total_s": self.total_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Add the times of an earlier part of the run."""
        for name, value in state["seconds"].items():
            self.seconds[name] += value
        self._earlier_s += state["total_s"]

    @property
    def total_s(self) -> float:
        """Seconds since the run was assigned, without those of instruments."""
        return self._earlier_s + self._run.total_s

    @property
    def instruments_s(self) -> float:
        """Seconds that instruments took so far."""
        return self._run.instruments_s

    def read(self) -> dict[str, float]:
        """`setup_s`, `total_s` and `instruments_s`."""
        return {"setup_s": self.seconds["setup_s"], "total_s": self.total_s, "instruments_s": self.instruments_s}

    def phases(self, total_s: float) -> dict[str, float]:
        """Seconds of each phase, and `between_s`, those of `total_s` in none of them."""
        return {**self.seconds, "between_s": total_s - sum(self.seconds.values())}


@dataclass(slots=True)
class LeftOut:
    """A time between two marks that counts in no step."""

    marks_before: int
    """How many marks the epoch had before it."""
    began: Any
    ended: Any
    ms: float = 0.0
    """Its milliseconds, once they were left out of a counted step."""


class StepTimer:
    """Times every optimizer step of an epoch without synchronising the device.

    The marks of steps are read after the epoch. The only synchronisation inside an epoch is at the end of the warm-up,
    where the clock of counted steps starts.

    Args:
        device: the rank's device.
        warmup_steps: steps that do not count.
        on_warm: called when they are over, before the clock of counted steps starts.
        power: runs while the clock of counted steps does.
    """

    def __init__(
        self,
        device: torch.device,
        warmup_steps: int,
        on_warm: Callable[[], None] = lambda: None,
        power: PowerMeter | None = None,
    ) -> None:
        self._device, self._on_warm = device, on_warm
        self.mark = marker(device)
        """The present moment, as the marks of steps."""
        self.power = power or PowerMeter(list)
        self._warmup_left = warmup_steps
        self._marks: list[Any] = []
        self._began = self._counted_from = 0.0
        self._samples = 0
        self.step_ms: list[float] = []
        """Milliseconds of every counted step so far, without what was left out of it."""
        self._left_out: list[LeftOut] = []
        self.left_out_ms = 0.0
        """Milliseconds that were left out of counted steps."""
        self.phases = StepPhases(device)

    def begin_epoch(self) -> None:
        """Start the clock; call it right after the barrier."""
        self._count_from_here()
        self._began = self._counted_from

    def add_samples(self, count: int) -> None:
        """Count samples of the step that is under way."""
        self._samples += count

    def step(self) -> None:
        """An optimizer step has been issued."""
        if not self._warmup_left:
            self.phases.end_step()
            self._marks.append(self.mark())
            return
        self._warmup_left -= 1
        if not self._warmup_left:
            synchronize(self._device)
            self._on_warm()
            self._count_from_here()

    @property
    def is_warm(self) -> bool:
        """Whether the step under way counts."""
        return not self._warmup_left

    def end_warm_up(self) -> None:
        """Let the next step be the last one that does not count."""
        self._warmup_left = min(self._warmup_left, 1)

    def leave_out(self, began: Any, ended: Any) -> LeftOut:
        """Count the time between two marks, of the step under way, in no step."""
        time_ = LeftOut(len(self._marks), began, ended)
        if self.is_warm:
            self._left_out.append(time_)
        return time_

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Between two steps: the time within this context is in no step and in no sum."""
        synchronize(self._device)
        began = time.perf_counter()
        self._read_marks()
        if self.is_warm:
            self.power.end()
        yield
        synchronize(self._device)
        seconds = time.perf_counter() - began
        self._began += seconds
        self._counted_from += seconds
        if not self._warmup_left:
            self._marks.append(self.mark())
            self.power.begin()
            self.phases.begin()

    def end_epoch(self) -> tuple[float, float, int]:
        """Stop the clock; returns seconds of warm-up, seconds of counted steps, and samples of the counted steps."""
        synchronize(self._device)
        ended = time.perf_counter()
        self.phases.end_epoch()
        if self._warmup_left:
            return ended - self._began, 0.0, 0
        self.power.end()
        self._read_marks()
        return self._counted_from - self._began, ended - self._counted_from, self._samples

    def percentiles(self) -> dict[str, float]:
        """Of the counted steps, in milliseconds: the median and the 95th percentile; empty without such steps."""
        if not self.step_ms:
            return {}
        p50, p95 = np.percentile(self.step_ms, [50, 95])
        return {"step_ms_p50": float(p50), "step_ms_p95": float(p95)}

    def quantiles(self) -> list[float]:
        """Milliseconds of a counted step at each of `STEP_QUANTILES`, to four digits; empty without such steps."""
        if not self.step_ms:
            return []
        return [float(f"{value:.4g}") for value in np.quantile(self.step_ms, STEP_QUANTILES)]

    def _count_from_here(self) -> None:
        self._samples = 0
        self.power.begin()
        self._counted_from = time.perf_counter()
        self._marks = [self.mark()]
        if not self._warmup_left:
            self.phases.begin()

    def _read_marks(self) -> None:
        """Turn the marks of counted steps into milliseconds; the device has finished all work."""
        if self._warmup_left:
            return
        steps = [elapsed_ms(began, ended) for began, ended in itertools.pairwise(self._marks)]
        for item in self._left_out:
            # The step under way at the end of a run is no step.
            if item.marks_before <= len(steps):
                item.ms = elapsed_ms(item.began, item.ended)
                steps[item.marks_before - 1] -= item.ms
                self.left_out_ms += item.ms
        self.step_ms += steps
        self._marks, self._left_out = [], []
