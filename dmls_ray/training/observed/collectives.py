"""`Collectives`: how long a rank waits for each kind of collective, whichever wrapper or line of code calls it."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dmls_ray.training.compat import around_waits, process_groups, unwatch_collectives, watch_collectives
from dmls_ray.training.observed.hooks import hook
from dmls_ray.training.step_phases import Phase

_KINDS = {"ALLREDUCE": "all_reduce_ms", "ALLGATHER": "all_gather_ms", "REDUCE_SCATTER": "reduce_scatter_ms"}
_OTHER = "other_collectives_ms"
"""Names that PyTorch gives collectives -> metrics; others are `_OTHER`."""
_MOST_AWAITED = 32
"""Collectives that may be under way at once."""


class Collectives:
    """The time that a rank on a CPU spends in calls of collectives and in waits for them.

    What C++ code waits for is not seen, as DDP's reducer, which has timers of its own, and tensors of compiled code:
    then the communication of a step is not known. On a GPU no wait of the host says what the device waits for.

    Every step is measured: code may average its models in every eighth, say.

    Args:
        note_fault: takes what failed in looking.
    """

    def __init__(self, note_fault: Callable[[Exception], None]) -> None:
        self._note_fault = note_fault
        self._groups: list[Any] = []
        """The process groups that are watched."""
        self._spans: list[tuple[float, float, str]] = []
        """Begin and end of each call and wait of the step under way, by the host's clock, and its kind."""
        self._awaited: dict[int, tuple[Any, str, float, float]] = {}
        """By the id of its object: what was called in that step and not waited for, its kind, and the call."""
        self._ms: defaultdict[str, float] = defaultdict(float)
        self._ms_of_phases: defaultdict[Phase, float] = defaultdict(float)
        self._steps = 0
        self.unseen = 0
        """Collectives for which no Python code waited."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the context lasts, collectives are seen."""
        with around_waits(self._waited):
            try:
                yield
            finally:
                for group in self._groups:
                    unwatch_collectives(group)

    def begin_step(self) -> None:
        """A step begins: measure its collectives."""
        for group in process_groups():
            if group not in self._groups:
                self._groups.append(group)
                watch_collectives(group, functools.partial(self._called, {}))
        self._spans, self._awaited = [], {}

    def end_step(self, marks: Sequence[tuple[Phase | None, float]]) -> None:
        """Take what the step had.

        Args:
            marks: the end of each of its phases, as `StepPhases` has them; first when it began.
        """
        self._steps += 1
        self.unseen += len(self._awaited)
        for began, ended, kind in self._spans:
            phase = _phase_at(ended, marks)
            if phase is not None:
                self._ms[kind] += (ended - began) * 1e3
                self._ms_of_phases[phase] += (ended - began) * 1e3

    def mean_ms(self) -> dict[str, float]:
        """Milliseconds of a step by kind; empty where there was none."""
        return {kind: ms / self._steps for kind, ms in self._ms.items()}

    def mean_ms_of_phases(self) -> Mapping[Phase, float]:
        """Likewise by the phase of the step that they were in."""
        return {phase: ms / self._steps for phase, ms in self._ms_of_phases.items()}

    @hook
    def _called(self, began: dict[int, float], name: str, number: int, work: Any) -> None:
        """A collective is about to be called, without `work`, or was called."""
        if work is None:
            began[number] = time.perf_counter()
            return
        # The object is kept, so that the one that is waited for is this one, and with it what it communicates.
        if len(self._awaited) == _MOST_AWAITED:
            del self._awaited[next(iter(self._awaited))]
            self.unseen += 1
        self._awaited[id(work)] = work, _KINDS.get(name, _OTHER), began.pop(number), time.perf_counter()

    @hook
    def _waited(self, work: Any, began: float) -> None:
        """Python code has waited for a collective."""
        if id(work) in self._awaited:
            _, kind, called, issued = self._awaited.pop(id(work))
            self._spans += [(called, issued, kind), (began, time.perf_counter(), kind)]


def _phase_at(moment: float, marks: Sequence[tuple[Phase | None, float]]) -> Phase | None:
    """The phase of a step that a moment is in; None where the time counts in no step."""
    for phase, ended in marks:
        if moment <= ended:
            return phase
    return "rest"
