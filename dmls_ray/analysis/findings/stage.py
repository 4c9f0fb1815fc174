"""How far a sweep is that repeats its trials until its comparisons are decided: `Stage`.

It follows from the records alone, so a sweep that goes on, and whoever reads its folder later, see the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from dmls_ray.analysis.stats.looks import FIRST_LOOK, Looks, next_look
from dmls_ray.config.until import Until
from dmls_ray.records.durations import Durations, seconds_of_run
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome


@dataclass(frozen=True)
class Stage:
    """The blocks of a sweep, and how many more may follow.

    Args:
        records: the runs of the sweep in bench mode.
        until: until when trials are repeated.
        beaten: trials that are left out of further blocks.
    """

    records: tuple[RunRecord, ...]
    until: Until
    beaten: frozenset[str] = frozenset()

    @classmethod
    def of(cls, records: Iterable[RunRecord], until: Until) -> Stage:
        """The stage of these runs."""
        return cls(tuple(record for record in records if record.mode == "bench"), until)

    @cached_property
    def trials(self) -> frozenset[str]:
        """The trials that are repeated: not those that are beaten, nor those without a run that ended ok."""
        return frozenset(record.trial_id for record in self.records if record.outcome is Outcome.OK) - self.beaten

    @cached_property
    def blocks(self) -> int:
        """Number of first blocks that have a run of every such trial."""
        return min((self.blocks_of(trial) for trial in self.trials), default=0)

    def blocks_of(self, trial: str) -> int:
        """Number of first blocks that have a run of a trial."""
        return _first_missing(self._repeats.get(trial, set()))

    @cached_property
    def _repeats(self) -> dict[str, set[int]]:
        repeats: dict[str, set[int]] = {}
        for record in self.records:
            repeats.setdefault(record.trial_id, set()).add(record.repeat)
        return repeats

    @cached_property
    def _run_s(self) -> dict[str, float]:
        """Seconds that a run of each trial takes."""
        durations = Durations(self.records)
        return {trial: durations.expected_s(trial) or 0.0 for trial in self.trials}

    @property
    def block_s(self) -> float:
        """Seconds that a block takes."""
        return sum(self._run_s.values())

    @cached_property
    def most(self) -> int:
        """Number of blocks that the sweep may have at most, by the number of repeats and the time that are allowed."""
        most = self.until.max_repeats
        if self.until.budget is not None and self.block_s > 0:
            # Trials that are added to a sweep have their share as well: the time of the others is not theirs.
            behind = {trial for trial in self.trials if self.blocks_of(trial) == self.blocks}
            all_are = len(behind) == len(self.trials)
            spent = sum(
                seconds_of_run(record)
                for record in self.records
                if record.repeat >= FIRST_LOOK and (all_are or record.trial_id in behind)
            )
            left = math.floor(max(self.until.budget - spent, 0.0) / self.block_s)
            most = min(most, FIRST_LOOK + math.floor(self.until.budget / self.block_s), self.blocks + left)
        return max(most, self.blocks)

    def without_those_left_out(self) -> Stage:
        """The stage of the trials that took part in the last blocks: others were beaten in a race before these.

        One block less is no sign of it: the sweep may have been cut short within a block.
        """
        if not self.until.race:
            return self
        last = max(map(self.blocks_of, self.trials), default=0)
        return replace(self, beaten=frozenset(trial for trial in self.trials if self.blocks_of(trial) < last - 1))

    @property
    def is_last(self) -> bool:
        """Whether no block may follow."""
        return self.most <= self.blocks

    @property
    def looks(self) -> Looks:
        """How the number of blocks came about."""
        return "last" if self.is_last else "open"

    @property
    def next_blocks(self) -> int:
        """The number of blocks of the next look."""
        return max(FIRST_LOOK, min(next_look(self.blocks), self.most))

    @property
    def next_s(self) -> float:
        """Seconds until the next look: trials that were added have more runs before it than others."""
        blocks = {trial: self.next_blocks - self.blocks_of(trial) for trial in self.trials}
        return sum(max(count, 0) * self._run_s[trial] for trial, count in blocks.items())


def _first_missing(repeats: set[int]) -> int:
    return next(repeat for repeat in range(len(repeats) + 1) if repeat not in repeats)
