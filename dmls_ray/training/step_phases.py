"""`StepPhases`: the parts of optimizer steps, as the documentation of the metrics defines them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar, get_args

import torch

from dmls_ray.training.marks import elapsed_ms, marker

Phase = Literal["data_wait", "forward", "backward", "optimizer", "rest"]
PHASES: tuple[Phase, ...] = get_args(Phase)

MEASURED_EVERY = {"cpu": 1, "cuda": 10}
"""Interval in steps at which phases are measured. On a CPU a mark costs about 0.1 microseconds, on a GPU it is an
event that the host must issue."""

Item = TypeVar("Item")


class StepPhases:
    """Milliseconds of each phase of the counted steps, without synchronising the device.

    Every moment of a step belongs to the phase that the next mark names, so the phases add up to the step. On a CPU
    the host's clock is read; on a GPU events are recorded on its stream, so that a phase takes from when the device
    reaches its beginning to when it reaches its end.

    Args:
        device: the rank's device.
        every: only each n-th step is measured; `MEASURED_EVERY` by default.
    """

    def __init__(self, device: torch.device, every: int | None = None) -> None:
        self._mark = marker(device)
        self._every = MEASURED_EVERY[device.type] if every is None else every
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._steps = self._measured = 0
        self.marks: list[tuple[Phase | None, Any]] = []
        """Of the step under way: where each phase ended, and first where the step began."""
        self._unread: list[list[tuple[Phase | None, Any]]] = []
        """The marks of steps that the device may not have reached."""
        self._waits_for_device = device.type == "cuda"
        self._is_counting = False

    def begin(self) -> None:
        """A step that counts begins here, after a time that is in no such step, as the warm-up or that between two
        epochs."""
        self._is_counting = not self._steps % self._every
        if self._is_counting:
            self.marks = [(None, self._mark())]

    def after(self, phase: Phase) -> None:
        """What the rank did since the last mark was this phase."""
        if self._is_counting:
            self.marks.append((phase, self._mark()))

    def state(self) -> int:
        """The phases of the step under way so far, for `restore`."""
        return len(self.marks)

    def restore(self, state: int) -> None:
        """What the rank did since `state` was called, in the same step, was no phase of it."""
        if self._is_counting:
            self.marks[state:] = [(None, self._mark())]

    def end_step(self) -> None:
        """A step ends here, and the next one begins."""
        if self._is_counting:
            self._measured += 1
            if self._waits_for_device:
                self._unread.append(self.marks)
            else:
                self._add(self.marks)
        self._steps += 1
        self.begin()

    def end_epoch(self) -> None:
        """Read the marks of the epoch; the device has finished all work. The step that had begun is left out."""
        for step in self._unread:
            first = step[0][1]
            self._add([(phase, elapsed_ms(first, ended) / 1e3) for phase, ended in step])
        self._unread = []

    def _add(self, step: list[tuple[Phase | None, float]]) -> None:
        seconds, began = self._seconds, 0.0
        for phase, ended in step:
            if phase is not None:
                seconds[phase] += ended - began
            began = ended

    def mean_ms(self) -> dict[Phase, float]:
        """Milliseconds of each phase in a step, over the measured steps; empty without any."""
        return {phase: s * 1e3 / self._measured for phase, s in self._seconds.items()} if self._measured else {}

    def parts_ms(self, exposed_ms: float) -> dict[str, float]:
        """`mean_ms` as metrics; empty without measured steps.

        Args:
            exposed_ms: what the rank waits for gradients at the end of the backward pass of a step. The part of the
                backward pass is without it.
        """
        parts = {f"{phase}_ms": ms for phase, ms in self.mean_ms().items()}
        if parts:
            parts["backward_ms"] = max(parts["backward_ms"] - exposed_ms, 0.0)
        return parts

    def waiting_for(self, batches: Iterable[Item]) -> Iterator[Item]:
        """Yield the items; the rank waits for each of them."""
        for item in batches:
            self.after("data_wait")
            yield item
