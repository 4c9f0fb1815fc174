"""`Look`: whether a sweep that repeats its trials until its comparisons are decided has enough repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dmls_ray.analysis.advise.race import race_for
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.summary.claims import Claim, claims_of
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, join_names
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.analysis.table.stage import Stage
from dmls_ray.util.quantities import duration

_SHOWN = 2
"""Open comparisons that are named."""


@dataclass(frozen=True)
class Look:
    """What the comparisons of a sweep's answer say after some blocks."""

    stage: Stage
    claims: Sequence[Claim]
    beaten: Sequence[Row] = ()
    """The trials of a race that take no part in further blocks."""

    @cached_property
    def open(self) -> list[Claim]:
        """The comparisons that are not decided, the widest interval first."""
        open_ = [claim for claim in self.claims if not claim.is_decided(self.stage.until)]
        return sorted(open_, key=lambda claim: -(claim.contrast.half_width or 0.0))

    @property
    def goes_on(self) -> bool:
        """Whether more blocks follow."""
        if self.stage.blocks < FIRST_LOOK:
            return bool(self.stage.trials)
        return bool(self.open) and not self.stage.is_last

    @property
    def progress(self) -> str:
        """What is open and what follows, while the sweep goes on."""
        more = self.stage.next_blocks - self.stage.blocks
        return (
            f"After {count_noun(self.stage.blocks, 'block')} {self._open_of}; {count_noun(more, 'more block')} "
            f"{'follows' if more == 1 else 'follow'}, about {duration(more * self.stage.block_s)}.{self._left_out}"
        )

    @property
    def result(self) -> str:
        """Why no more blocks were run, or what may decide the rest; empty without comparisons."""
        if not self.claims and not self.beaten:
            return ""
        return f"{self._end}{self._left_out}"

    @property
    def _end(self) -> str:
        blocks, until = count_noun(self.stage.blocks, "block"), self.stage.until
        if not self.claims:
            return f"{blocks}: the race is decided."
        if not self.open:
            known = "decided" if len(self.claims) == 1 else "all decided"
            return (
                f"{blocks}: the {count_noun(len(self.claims), 'comparison')} of the answer "
                f"{'is' if len(self.claims) == 1 else 'are'} {known}, or known to {until.within:.3g}."
            )
        if not self.stage.is_last:
            return f"{blocks}: {self._open_of}; the same command goes on."
        if self.stage.blocks >= until.max_repeats:
            why, way_out = f"the most that --max-repeats {until.max_repeats} allows", f"--max-repeats {self._wanted}"
        else:
            why = f"as many as --budget {until.budget:g} has time for"
            wanted_s = max(0, self._wanted - FIRST_LOOK) * self.stage.block_s
            way_out = f"--budget {_round_up(wanted_s)}"
            if self._wanted > until.max_repeats:
                way_out += f" --max-repeats {self._wanted}"
        return f"{blocks}, {why}: {self._open_of}; about {self._wanted} would decide: {way_out}."

    @property
    def _left_out(self) -> str:
        if not self.beaten:
            return ""
        names = join_names([describe_configuration(row.factors) for row in self.beaten], separator=", ")
        return f" Beaten for {self.stage.until.aim} and left out of further blocks: {names}."

    @property
    def _open_of(self) -> str:
        names = join_names([claim.text for claim in self.open], most=_SHOWN)
        is_are = "is" if len(self.open) == 1 else "are"
        return f"{len(self.open)} of {count_noun(len(self.claims), 'comparison')} {is_are} open ({names})"

    @property
    def _wanted(self) -> int:
        wanted = (claim.repeats_wanted(self.stage.until) for claim in self.open)
        return max([self.stage.blocks + 1, *(count for count in wanted if count is not None)])


def _round_up(seconds: float) -> str:
    """Seconds with some to spare, as a flag takes them."""
    minutes = math.ceil(seconds * 1.2 / 60)
    return f"{minutes}m" if minutes < 120 else f"{math.ceil(minutes / 60)}h"


def look_at(table: Table, varied: Sequence[str], changed: Sequence[str] = ()) -> Look | None:
    """What the comparisons of a sweep's answer say; None if the number of repeats was given.

    Args:
        table: the trials.
        varied: the fields that were given several values.
        changed: fields that were changed one at a time.
    """
    if table.stage is None:
        return None
    stage = table.stage
    if stage.until.aim is None or not any(row.counted for row in table.rows):
        return Look(stage, claims_of(table, varied, changed))
    race = race_for(table, stage.until.aim)
    stage = replace(stage, beaten=frozenset(row.trial_id for row in race.beaten))
    return Look(stage, race.claims, race.beaten)
