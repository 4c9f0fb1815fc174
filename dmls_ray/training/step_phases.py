"""Where the time of an optimizer step goes on one rank: data, forward, backward, optimizer, and the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

import torch

from dmls_ray.training.marks import elapsed_ms, mark

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
        self._device, self._cuda = device, device.type == "cuda"
        self._every = MEASURED_EVERY[device.type] if every is None else every
        self._ms = dict.fromkeys(PHASES, 0.0)
        self._steps = self._measured = 0
        self._events: list[list[tuple[Phase | None, Any]]] = []
        self._is_counting = False

    def begin(self) -> None:
        """A step that counts begins here, after a time that is in no such step, as the warm-up or that between two
        epochs."""
        self._is_counting = self._steps % self._every == 0
        if self._is_counting:
            self._last = mark(self._device)
            if self._cuda:
                self._events.append([(None, self._last)])

    def after(self, phase: Phase) -> None:
        """What the rank did since the last mark was this phase."""
        if not self._is_counting:
            return
        now = mark(self._device)
        if self._cuda:
            self._events[-1].append((phase, now))
        else:
            self._ms[phase] += (now - self._last) * 1e3
            self._last = now

    def end_step(self) -> None:
        """A step ends here, and the next one begins."""
        self._measured += self._is_counting
        self._steps += 1
        self.begin()

    def end_epoch(self) -> None:
        """Read the events of the epoch; the device has finished all work. The step that had begun is left out."""
        for step in self._events:
            for (_, began), (phase, ended) in itertools.pairwise(step):
                assert phase is not None
                self._ms[phase] += elapsed_ms(began, ended)
        self._events = []

    def mean_ms(self) -> dict[Phase, float]:
        """Milliseconds of each phase in a step, over the measured steps; empty without any."""
        return {phase: ms / self._measured for phase, ms in self._ms.items()} if self._measured else {}

    def parts_ms(self, exposed_ms: float, broadcast_ms: float) -> dict[str, float]:
        """`mean_ms` as metrics, of computing alone; empty without measured steps.

        Args:
            exposed_ms: what the rank waits for gradients at the end of the backward pass of a step.
            broadcast_ms: what it waits for broadcasts of ZeRO in the optimizer.
        """
        waits = {"backward": exposed_ms, "optimizer": broadcast_ms}
        return {f"{name}_ms": max(ms - max(waits.get(name, 0.0), 0.0), 0.0) for name, ms in self.mean_ms().items()}

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"ms": self._ms, "measured": self._measured}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self._ms, self._measured = dict(state["ms"]), state["measured"]

    def waiting_for(self, batches: Iterable[Item]) -> Iterator[Item]:
        """Yield the items; the rank waits for each of them."""
        for item in batches:
            self.after("data_wait")
            yield item
