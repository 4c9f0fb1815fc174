"""`Look`: whether a sweep that repeats its trials until its comparisons are decided has enough repeats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from dmls_ray.analysis.advise.race import race_for
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.summary.claims import Claim, claims_of
from dmls_ray.analysis.summary.losers import Loser, losers_of
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, join_names
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.analysis.table.stage import Stage
from dmls_ray.config.until import Until
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.quantities import duration

_SHOWN = 2
"""Open comparisons that are named."""
_MOST_REPEATS = 100
_MOST_S = 86_400
"""Repeats, and seconds of further ones, beyond which more are not advised."""


@dataclass(frozen=True)
class Look:
    """What the comparisons of a sweep's answer say after some blocks."""

    stage: Stage
    claims: Sequence[Claim]
    beaten: Sequence[Row] = ()
    """The trials of a race that take no part in further blocks."""
    losers: Mapping[str, Loser] = field(default_factory=dict)
    """Those that lose accuracy, by trial_id."""

    @cached_property
    def open(self) -> list[Claim]:
        """The comparisons that are not decided, the widest interval first."""
        return _open_claims(self.claims, self.stage.until)

    @cached_property
    def rough(self) -> list[Claim]:
        """The comparisons that are decided and yet hardly say by how much, the widest interval first.

        A race has none: it only asks which trial is the best.
        """
        claims = [] if self.stage.until.race else [claim for claim in self.claims if claim.is_rough(self.stage.until)]
        return _widest_first(claims)

    @property
    def goes_on(self) -> bool:
        """Whether more blocks follow."""
        if self.stage.blocks < FIRST_LOOK:
            return bool(self.stage.trials)
        # A comparison that most repeats lack, as of a trial that fails, is not decided by more.
        may_be = [claim for claim in self.open if 2 * claim.contrast.n >= self.stage.blocks]
        return bool(may_be or self.rough) and not self.stage.is_last

    @property
    def progress(self) -> str:
        """What is open and what follows, while the sweep goes on."""
        more = self.stage.next_blocks - self.stage.blocks
        claims, state = (self.open, "open") if self.open else (self.rough, "known only roughly")
        names = join_names([claim.text for claim in claims], most=_SHOWN)
        return (
            f"After {count_noun(self.stage.blocks, 'repeat')}, {self._count_of(claims)} "
            f"{'is' if len(claims) == 1 else 'are'} {state} ({names}); {count_noun(more, 'more repeat')} "
            f"{'follows' if more == 1 else 'follow'}, about {duration(self.stage.next_s)}.{self._left_out}"
        )

    @property
    def result(self) -> str:
        """That no more blocks are needed, and which trials were left out; empty while comparisons are open."""
        if self.open or not (self.claims or self.beaten):
            return ""
        repeats, until, count = count_noun(self.stage.blocks, "repeat"), self.stage.until, len(self.claims)
        if not self.claims:
            return f"{repeats}: the race is decided.{self._left_out}"
        comparisons = {1: "the comparison of the answer is", 2: "both comparisons of the answer are"}.get(
            count, f"all {count:,} comparisons of the answer are"
        )
        points = any(claim.measure.kind == "points" for claim in self.claims)
        known = f"{until.within * 100:.3g}%{f' ({until.within:.3g} of accuracy)' if points else ''}"
        between = [claim for claim in self.claims if not claim.is_within_trial]
        which = "their intervals" if len(between) == count else "the intervals between trials"
        together = "" if len(between) < 2 else f"; {which} hold for all pairs together"
        return f"{repeats}: {comparisons} beyond chance, or known to within {known}{together}.{self._left_out}"

    @property
    def end(self) -> str:
        """Why no more blocks are run; empty without comparisons."""
        undecided = self.undecided
        return f"Undecided: {undecided}." if undecided else self.result

    @property
    def undecided(self) -> str:
        """Which comparisons are open after the last block, and what may decide them; empty where none is."""
        if not self.open:
            return ""
        after, until = f"after {count_noun(self.stage.blocks, 'repeat')}", self.stage.until
        if self.goes_on:
            return f"{self._count_of(self.open)} {after}: {self._open_names}; --repeats auto goes on"
        if not self.stage.is_last:
            return f"{self._count_of(self.open)} {after}, of which too few runs ended ok: {self._open_names}"
        if self.stage.blocks >= until.max_repeats:
            why = f"the most that --max-repeats {until.max_repeats} allows"
        else:
            why = f"as many as --budget {until.budget:g} has time for"
        text = "; ".join(
            filter(None, [f"{self._count_of(self.open)} {after}, {why}: {self._open_names}", self._way_out])
        )
        return f"{text}.{self._left_out.rstrip('.')}" if self.beaten else text

    @property
    def _way_out(self) -> str:
        """About how many repeats decide what is open, and the flags that allow them."""
        stage, until = self.stage, self.stage.until
        in_time = stage.blocks + math.floor(_MOST_S / stage.block_s) if stage.block_s > 0 else _MOST_REPEATS
        wanted = _Wanted.of(self.open, until, min(in_time, _MOST_REPEATS))
        repeats = max(stage.blocks + 1, wanted.repeats)
        wanted_s = max(0, repeats - FIRST_LOOK) * stage.block_s
        flags = [f"--budget {_round_up(wanted_s)}"] if until.budget is not None and wanted_s > until.budget else []
        flags += [f"--max-repeats {repeats}"] if repeats > until.max_repeats else []
        return wanted.describe(repeats, " ".join(flags) or "the same command with a larger --budget")

    @property
    def _left_out(self) -> str:
        if not self.beaten:
            return ""
        names = [
            self.losers[row.trial_id].text if row.trial_id in self.losers else describe_configuration(row.factors)
            for row in self.beaten
        ]
        return (
            f" Beaten for {self.stage.until.aim} and left out of further repeats: {join_names(names, separator=', ')}."
        )

    def _count_of(self, claims: Sequence[Claim]) -> str:
        return f"{len(claims)} of {count_noun(len(self.claims), 'comparison')}"

    @property
    def _open_names(self) -> str:
        return join_names([claim.text for claim in self.open], most=_SHOWN)


def _open_claims(claims: Sequence[Claim], until: Until) -> list[Claim]:
    """The comparisons that are not decided, the widest interval first."""
    return _widest_first([claim for claim in claims if not claim.is_decided(until)])


def _widest_first(claims: Sequence[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda claim: -(claim.contrast.half_width or 0.0))


@dataclass(frozen=True)
class _Wanted:
    """About how many repeats decide some comparisons."""

    repeats: int
    """As many as decide those that a realistic number decides; 0 where there is none."""
    decided: int
    """The number of these comparisons."""
    hopeless: int
    """The number of those that would take more."""

    @classmethod
    def of(cls, claims: Sequence[Claim], until: Until, most: int = _MOST_REPEATS) -> Self:
        """Of some comparisons.

        Args:
            claims: the comparisons; those without an interval say nothing.
            until: when they are decided.
            most: repeats that are realistic.
        """
        wanted = [count for claim in claims if (count := claim.repeats_wanted(until)) is not None]
        within = [count for count in wanted if count <= most]
        return cls(max(within, default=0), len(within), len(wanted) - len(within))

    def describe(self, repeats: int, way_out: str) -> str:
        """What decides them.

        Args:
            repeats: their number, as the flags have it.
            way_out: the flags that allow them.
        """
        texts = []
        if self.decided:
            which = f" {self.decided} of them" if self.hopeless else ""
            texts.append(f"about {repeats} repeats would decide{which}: {way_out}")
        if self.hopeless:
            which = "the others" if self.decided else "this"
            texts.append(f"no realistic number of repeats decides {which} on this machine")
        return "; ".join(texts)


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
    # Who was beaten stays out: with few repeats it may look better again by chance.
    out = [row for row in table.rows if row.trial_id in stage.beaten]
    try:
        left = [row for row in table.rows if row.trial_id not in stage.beaten]
        race = race_for(replace(table, rows=left), stage.until.aim)
    except ConfigError:
        # Runs that report nothing of the aim are compared as those of any sweep.
        return Look(stage, claims_of(table, varied, changed))
    beaten = [*out, *race.beaten]
    stage = replace(stage, beaten=frozenset(row.trial_id for row in beaten))
    return Look(stage, race.claims, beaten, losers_of(table, table.rows))


def undecided_of(table: Table, varied: Sequence[str], changed: Sequence[str] = ()) -> str:
    """Which comparisons of a sweep's answer are open, and what may decide them; empty where none is.

    Args:
        table: the trials.
        varied: the fields that were given several values.
        changed: fields that were changed one at a time.
    """
    if (look := look_at(table, varied, changed)) is not None:
        return look.undecided
    until, claims = Until(), claims_of(table, varied, changed)
    if not (open_ := _open_claims(claims, until)):
        return ""
    count = f"{len(open_)} of {count_noun(len(claims), 'comparison')}"
    wanted = _Wanted.of(open_, until)
    if not (way_out := wanted.describe(wanted.repeats, f"--repeats {wanted.repeats}")):
        return f"{count}: below {FIRST_LOOK} repeats there is no interval; --repeats auto decides"
    return f"{count}: {join_names([claim.text for claim in open_], most=_SHOWN)}; {way_out}"
