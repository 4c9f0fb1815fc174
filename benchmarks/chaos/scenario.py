"""A scenario: a seed, and the place and the timed faults that follow from it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chaos.command import Sweep
from benchmarks.chaos.faults import KINDS
from benchmarks.chaos.places import PLACES

LAST_STRIKE = 0.6
"""Share of the rows after which the last fault strikes, so that rows follow it."""


@dataclass(frozen=True, kw_only=True)
class Strike:
    """One fault of a scenario."""

    kind: str
    after_rows: int
    """The sweep has printed so many rows, over all commands. Rows are a clock that a busy machine does not change."""
    delay_s: float
    """Seconds from then on."""
    seed: int
    """Determines the victim among several."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a scenario is."""

    runs: int = 60
    faults: int = 6
    pause_s: float = 30.0
    """How long a stopped process is stopped."""


SHORT = Size(runs=8, faults=2, pause_s=3.0)
"""Of the test."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What happens to one sweep."""

    seed: int
    place: str
    sweep: Sweep
    pause_s: float
    strikes: tuple[Strike, ...]


def make_scenario(seed: int, size: Size, *, place: str = "", kinds: Sequence[str] = ()) -> Scenario:
    """The scenario of a seed.

    Args:
        seed: equal seeds, with equal other arguments, make equal scenarios.
        size: number of runs and faults.
        place: name of the place; by default the seed determines it.
        kinds: faults to choose from; by default all that are possible at the place.
    """
    chance = random.Random(f"scenario {seed}")
    names = [name for name in PLACES if not kinds or any(KINDS[kind].is_possible_at(PLACES[name]) for kind in kinds)]
    place = place or chance.choices(names, weights=[PLACES[name].weight for name in names])[0]
    runs = max(4, size.runs // PLACES[place].run_costs)
    sizes = PLACES[place].sizes
    sweep = Sweep(
        sizes=sizes,
        repeats=runs // (2 * len(sizes)),
        stall_timeout_s=chance.choice((10.0, 600.0)),
        checkpoints=chance.random() < 0.5 and place != "store",
    )
    return Scenario(
        seed=seed,
        place=place,
        sweep=sweep,
        pause_s=size.pause_s,
        strikes=_strikes(chance, place, size.faults, sweep.runs, kinds),
    )


def _strikes(chance: random.Random, place: str, count: int, runs: int, kinds: Sequence[str]) -> tuple[Strike, ...]:
    """So many faults; every other one is of the place's kind, if it has any."""
    possible = [
        name for name, kind in KINDS.items() if kind.is_possible_at(PLACES[place]) and (not kinds or name in kinds)
    ]
    special = [name for name in possible if KINDS[name].places] if place != "machine" else []
    chosen: list[str] = []
    for number in range(count):
        pool = special if special and number % 2 == 0 else possible
        # Each kind once before one comes again.
        fresh = [name for name in pool if name not in chosen] or pool
        chosen.append(chance.choice(fresh))
    moments = sorted(chance.randint(0, max(1, int(runs * LAST_STRIKE))) for _ in chosen)
    return tuple(
        Strike(kind=kind, after_rows=rows, delay_s=round(chance.uniform(0, 0.4), 3), seed=chance.randrange(2**32))
        for kind, rows in zip(chosen, moments, strict=True)
    )
