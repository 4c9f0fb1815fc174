"""How often intervals and verdicts are right where lanes measure at the same time: simulations of whole sweeps.

Each lane takes the next whole block when its block has ended. Lanes differ in speed and in noise, slow down, and lose
blocks, which are measured again on another lane. A sweep looks when the blocks of a look have ended; blocks that are
under way then count at the next look. The columns are those of `intervals.py`.

    python benchmarks/lane_intervals.py [--draws 2000]
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.intervals import (
    MOST_BLOCKS,
    NOISES,
    Draw,
    Measured,
    Outcome,
    are_known,
    outcome_of,
    print_simulated,
    speed_and_accuracy,
    summarize,
)
from dmls_ray.analysis.stats.block_model import BlockModel
from dmls_ray.analysis.stats.looks import FIRST_LOOK, Looks, next_look


@dataclass(frozen=True)
class Lanes:
    """Lanes that measure at the same time."""

    name: str
    speeds: Sequence[float]
    """Of each lane."""
    noise: Sequence[float]
    """Of each lane, as a factor."""
    slows_down: bool = False
    """The last lane becomes 20% slower within a block."""
    lost: float = 0.0
    """Share of blocks whose machine leaves; another lane measures them again from their first run."""


@dataclass(frozen=True)
class Block:
    """A block that was measured."""

    number: int
    lane: int
    ends: float
    before: int
    """Runs of its lane before it."""


def schedule(lanes: Lanes, trials: int, random: np.random.Generator) -> list[Block]:
    """As many blocks as a sweep may have, in the order in which they end."""
    free = [(0.0, lane, 0) for lane in range(len(lanes.speeds))]
    heapq.heapify(free)
    blocks = []
    for number in range(MOST_BLOCKS):
        starts, lane, runs = heapq.heappop(free)
        if random.random() < lanes.lost and free:
            # Its machine leaves within the block and is back a block later.
            lost_at = starts + random.random() * trials / lanes.speeds[lane]
            heapq.heappush(free, (lost_at + trials, lane, runs))
            starts, lane, runs = heapq.heappop(free)
            starts = max(starts, lost_at)
        ends = starts + trials / lanes.speeds[lane] * random.uniform(0.9, 1.1)
        blocks.append(Block(number, lane, ends, runs))
        heapq.heappush(free, (ends, lane, runs + trials))
    return sorted(blocks, key=lambda block: block.ends)


def values_on(
    lanes: Lanes, blocks: Sequence[Block], measure: Measured, draw: Draw, random: np.random.Generator
) -> NDArray[np.float64]:
    """The values of runs, of shape (trials, blocks), the blocks by their numbers."""
    trials = len(measure.truths)
    noise = draw(random, (trials, len(blocks)))
    offsets = np.zeros((trials, len(blocks)))
    slow_from = random.integers(1, max(MOST_BLOCKS // len(lanes.speeds), 1) * trials + 1)
    for block in blocks:
        noise[:, block.number] *= lanes.noise[block.lane]
        offsets[:, block.number] += np.log(lanes.speeds[block.lane])
        if lanes.slows_down and block.lane == len(lanes.speeds) - 1:
            # The order of the trials within a block is shuffled.
            places = block.before + random.permutation(trials)
            offsets[places >= slow_from, block.number] += np.log(0.8)
    if not measure.is_ratio:
        offsets = np.zeros_like(offsets)
    return measure.values(noise, offsets, random)


def looks_of(blocks: Sequence[Block]) -> Iterator[tuple[list[int], bool]]:
    """The blocks that each look has, by their numbers, and whether others are under way; the last look has all."""
    next_at = FIRST_LOOK
    ended: list[int] = []
    for block in blocks:
        ended.append(block.number)
        complete = next(number for number in range(MOST_BLOCKS + 1) if number not in ended)
        if complete >= next_at or len(ended) == MOST_BLOCKS:
            yield list(ended), len(ended) < MOST_BLOCKS
            next_at = min(next_look(complete), MOST_BLOCKS)


def simulate(lanes: Lanes, measures: Sequence[Measured], draw: Draw, random: np.random.Generator) -> Outcome:
    """Run one sweep on lanes."""
    trials = len(measures[0].truths)
    blocks = schedule(lanes, trials, random)
    values = [values_on(lanes, blocks, measure, draw, random) for measure in measures]
    looked: list[int] = []
    for looked, may_go_on in looks_of(blocks):
        looks: Looks = "open" if may_go_on else "last"
        if not may_go_on or are_known(measures, _models(measures, values, looked, looks)):
            # No block is begun any more; those under way end, and are looked at.
            under_way = [block.number for block in blocks if block.number not in looked][: len(lanes.speeds) - 1]
            looked = [*looked, *under_way]
            looks = "open" if len(looked) < MOST_BLOCKS else "last"
            if looks == "last" or are_known(measures, _models(measures, values, looked, looks)):
                return outcome_of(measures, _models(measures, values, looked, looks), len(looked))
    raise AssertionError("the last look ends a sweep")


def _models(
    measures: Sequence[Measured], values: Sequence[NDArray[np.float64]], blocks: Sequence[int], looks: Looks
) -> list[BlockModel]:
    return [
        measure.model(runs[:, blocks], looks, len(measures)) for measure, runs in zip(measures, values, strict=True)
    ]


def conditions() -> list[Lanes]:
    """The lanes that are simulated."""
    found = []
    for count in (1, 4, 16):
        equal = [1.0] * count
        found.append(Lanes(f"{count} equal", equal, equal))
        found.append(Lanes(f"{count}, one slows down by 20% within a block", equal, equal, slows_down=True))
        if count > 1:
            found.append(Lanes(f"{count}, speeds differ by 10%", np.linspace(1, 0.9, count).tolist(), equal))
            found.append(Lanes(f"{count}, one with 6 times the noise", equal, [6.0, *equal[1:]]))
            found.append(Lanes(f"{count}, a fifth of the blocks lost", equal, equal, lost=0.2))
    return found


def sweeps() -> dict[str, list[Measured]]:
    """Name -> the measures of the trials."""
    return {
        "2 equal": speed_and_accuracy([0.0] * 2, [0.03] * 2),
        "4 equal": speed_and_accuracy([0.0] * 4, [0.08] * 4),
        "4, one 10% faster": speed_and_accuracy([0.1, 0.0, 0.0, 0.0], [0.05] * 4),
    }


def simulated(lanes: Lanes, name: str, noise: str, draws: int) -> dict[str, object]:
    """A row of the table: the shares of so many sweeps."""
    random = np.random.default_rng(0)
    outcomes = [simulate(lanes, sweeps()[name], NOISES[noise], random) for _ in range(draws)]
    return {"lanes": lanes.name, "trials": name, "noise": noise, **summarize(outcomes)}


if __name__ == "__main__":
    print_simulated(__doc__, simulated, itertools.product(conditions(), sweeps(), ("normal", "real residuals")))
