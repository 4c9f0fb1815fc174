"""`Stage`: how far a sweep is that repeats its trials until its comparisons are decided.

It follows from the records alone, so a sweep that goes on, and whoever reads its folder later, see the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dmls_ray.analysis.stats.looks import FIRST_LOOK, Looks, next_look
from dmls_ray.config.until import Until
from dmls_ray.records.durations import Durations, seconds_of_run
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome


@dataclass(frozen=True)
class Stage:
    """The blocks of a sweep, and how many more may follow."""

    records: Sequence[RunRecord]
    """The runs of the sweep in bench mode."""
    until: Until
    """Until when trials are repeated."""
    beaten: frozenset[str] = frozenset()
    """Trials that are left out of further blocks."""

    @cached_property
    def blocks_of(self) -> dict[str, int]:
        """Trial -> number of first blocks that have a run of it.

        Of the trials that are repeated: not those that are beaten, nor those without a run that ended ok.
        """
        repeats: dict[str, set[int]] = {}
        for record in self.records:
            repeats.setdefault(record.trial_id, set()).add(record.repeat)
        blocks = {}
        for record in self.records:
            if record.outcome is Outcome.OK and record.trial_id not in self.beaten:
                found = repeats[record.trial_id]
                blocks[record.trial_id] = min({*range(len(found) + 1)} - found)
        return blocks

    @property
    def trials(self) -> Collection[str]:
        """The trials that are repeated."""
        return self.blocks_of.keys()

    @property
    def blocks(self) -> int:
        """Number of first blocks that have a run of every such trial."""
        return min(self.blocks_of.values(), default=0)

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
        most, budget = self.until.max_repeats, self.until.budget
        if budget is not None and self.block_s > 0:
            # Trials that are added to a sweep have their share as well: the time of the others is not theirs.
            behind = {trial for trial, blocks in self.blocks_of.items() if blocks == self.blocks}
            spent = 0.0
            for record in self.records:
                is_counted = record.trial_id in behind or behind == self.trials
                if is_counted and record.repeat >= FIRST_LOOK:
                    spent += seconds_of_run(record)
            left = math.floor(max(budget - spent, 0.0) / self.block_s)
            most = min(most, FIRST_LOOK + math.floor(budget / self.block_s), self.blocks + left)
        return max(most, self.blocks)

    def without_those_left_out(self) -> Stage:
        """The stage of the trials that took part in the last blocks: others were beaten in a race before these.

        One block less is no sign of it: the sweep may have been cut short within a block.
        """
        if not self.until.race:
            return self
        last = max(self.blocks_of.values(), default=0)
        return replace(self, beaten=frozenset(trial for trial in self.trials if self.blocks_of[trial] < last - 1))

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
        seconds = 0.0
        for trial, blocks in self.blocks_of.items():
            seconds += max(self.next_blocks - blocks, 0) * self._run_s[trial]
        return seconds
