"""`Collectives`: how long a rank waits for each kind of collective, whichever wrapper or line of code calls it."""

from __future__ import annotations

import functools
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from dmls_ray.training.compat import around_waits, groups_made, process_groups, unwatch_collectives, watch_collectives
from dmls_ray.training.observed.hooks import Faults
from dmls_ray.training.step_phases import Phase

_KINDS = {"ALLREDUCE": "all_reduce_ms", "ALLGATHER": "all_gather_ms", "REDUCE_SCATTER": "reduce_scatter_ms"}
_OTHER = "other_collectives_ms"
"""Names that PyTorch gives collectives -> metrics; others are `_OTHER`."""


class Collectives:
    """The time that a rank on a CPU spends in calls of collectives and in waits for them.

    What C++ code or another thread waits for is not seen: then the communication of a step is not known. DDP's reducer
    has timers of its own. On a GPU no wait of the host says what the device waits for.

    Every step is measured: code may average its models in every eighth, say.

    Args:
        faults: takes what failed in looking.
        is_reducer: whether what is called now is called by DDP's reducer.
    """

    def __init__(self, faults: Faults, is_reducer: Callable[[], bool]) -> None:
        self._guarded = faults.guarded
        self._is_reducer = is_reducer
        self._thread = get_ident()
        self._groups: list[Any] = []
        """The process groups that are watched."""
        self._groups_made = 0
        self._spans: list[tuple[float, float, str]] = []
        """Begin and end of each call and wait of the step under way, by the host's clock, and its kind."""
        self._awaited: deque[tuple[float, float, str]] = deque()
        """The asynchronous calls of that step that were not waited for. Their works are not kept, nor is what these
        communicate: the first wait is taken for that of the first call."""
        self._call: tuple[float, float, str] | None = None
        """The synchronous call whose wait follows."""
        self._ms: defaultdict[str, float] = defaultdict(float)
        self._ms_of_phases: defaultdict[Phase, float] = defaultdict(float)
        self._steps = 0
        self.unseen = 0
        """Collectives for which no Python code waited in the step and the thread of their call, or that may be some."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the context lasts, collectives are seen."""
        with around_waits(self._guarded(self._waited)):
            try:
                yield
            finally:
                for group in self._groups:
                    unwatch_collectives(group)

    def step_began(self) -> None:
        """A step begins: measure its collectives."""
        present = process_groups()
        # A group that was destroyed is not kept.
        self._groups = [group for group in self._groups if group in present]
        for group in present:
            if group not in self._groups:
                self._groups.append(group)
                watch_collectives(group, self._guarded(functools.partial(self._called, {})))
        self._spans, self._call = [], None
        self._awaited.clear()
        self._thread, self._groups_made = get_ident(), groups_made()

    def step_ended(self, marks: Sequence[tuple[Phase | None, float]]) -> None:
        """Take what the step had.

        Args:
            marks: the end of each of its phases, as `StepPhases` has them; first when it began.
        """
        self._steps += 1
        # A group that was made in the step may have had collectives before it was watched.
        self.unseen += len(self._awaited) + (self._call is not None) + groups_made() - self._groups_made
        rest: Phase = "rest"
        for began, ended, kind in self._spans:
            # What ends after the last mark is in the rest of the step; a phase of None counts in no step.
            phase = next((phase for phase, end in marks if ended <= end), rest)
            if phase is not None:
                self._ms[kind] += (ended - began) * 1e3
                self._ms_of_phases[phase] += (ended - began) * 1e3

    def mean_ms(self) -> dict[str, float]:
        """Milliseconds of a step by kind; empty where there was none, or where some are not known."""
        return {} if self.unseen else {kind: ms / self._steps for kind, ms in self._ms.items()}

    def mean_ms_of_phases(self) -> Mapping[Phase, float]:
        """Likewise by the phase of the step that they were in."""
        return {} if self.unseen else {phase: ms / self._steps for phase, ms in self._ms_of_phases.items()}

    def _called(self, began: dict[int, float], name: str, number: int, is_issued: bool, is_asynchronous: bool) -> None:
        """A collective is about to be called, or was."""
        if not is_issued:
            began[number] = time.perf_counter()
            return
        call = began.pop(number), time.perf_counter(), _KINDS.get(name, _OTHER)
        if get_ident() != self._thread:
            self.unseen += 1
        elif is_asynchronous:
            if not self._is_reducer():
                self._awaited.append(call)
        else:
            self.unseen += self._call is not None
            self._call = call

    def _waited(self, began: float) -> None:
        """Python code has waited for a collective."""
        ended = time.perf_counter()
        if get_ident() != self._thread:
            return
        call, self._call = self._call, None
        if call is None and self._awaited:
            call = self._awaited.popleft()
        if call is not None:
            self._spans += [call, (began, ended, call[2])]
