"""How often the intervals and verdicts of a sweep are right: simulations of the complete procedure.

A sweep repeats until every comparison of its trials is decided and not rough, or known to 5%, or it has 30 blocks, and
then states its verdicts. `false verdicts` is the share of sweeps with at least one: a trial is called faster that is
not. `coverage` is the share of intervals that contain the truth, `all` the share of sweeps in which all do. `power` is
the share of true differences that are found.

The noise is drawn from a distribution, or with replacement from the residuals of two identical trials in 400 blocks:

    python sweeps/batch_size.py --batch-per-rank 32 --world-size 1 --lr 0.001 0.0010000001 --repeats 400
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from dmls_ray.analysis.stats.block_model import BlockModel, is_decided, is_rough
from dmls_ray.analysis.stats.intervals import is_below
from dmls_ray.analysis.stats.looks import next_look

RESIDUALS = Path(__file__).parents[1] / "results" / "reference" / "identical_trials.csv"
MOST_BLOCKS = 30
PRECISION, EQUIVALENT = 0.05, 0.02
_BLOCK_DEVIATION = 0.1
"""Of what the machine does to all trials of a block. It has no influence on differences within a block."""
_FAR = 3.0

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
"""Noise of standard deviation 1, a row a trial and a column a block."""


@dataclass(frozen=True)
class Scenario:
    """Trials with their true logarithms of speed and the standard deviations of their noise."""

    name: str
    speeds: Sequence[float]
    deviations: Sequence[float]


@dataclass(frozen=True)
class Outcome:
    """What one sweep says."""

    blocks: int
    has_false_verdict: bool
    is_covered: Sequence[bool]
    """Of each pair: whether the interval contains the truth."""
    is_found: Sequence[bool]
    """Of each pair that differs: whether the sweep says so."""
    share_decided: float


def simulate(
    scenario: Scenario,
    draw: Draw,
    random: np.random.Generator,
    *,
    fixed: int | None = None,
    most_blocks: int = MOST_BLOCKS,
) -> Outcome:
    """Run one sweep.

    Args:
        scenario: the trials.
        draw: the noise.
        random: the source of chance.
        fixed: number of blocks; without it, until all is decided.
        most_blocks: how many the sweep has time for.
    """
    trials, most = len(scenario.speeds), fixed or most_blocks
    noise = draw(random, (trials, most)) * np.asarray(scenario.deviations)[:, None]
    logs = noise + random.normal(0, _BLOCK_DEVIATION, most) + np.asarray(scenario.speeds)[:, None]
    pairs = list(itertools.combinations(range(trials), 2))
    blocks = fixed or 0
    while True:
        blocks = fixed or min(next_look(blocks), most)
        values = {str(trial): dict(enumerate(np.exp(logs[trial, :blocks]))) for trial in range(trials)}
        model = BlockModel(values, is_ratio=True, looks="none" if fixed else "last" if blocks == most else "open")
        contrasts = [model.against(str(one), str(other)) for one, other in pairs]
        decided = [is_decided(item, null=1, precision=PRECISION, equivalent=EQUIVALENT) for item in contrasts]
        is_known = all(decided) and not any(item and is_rough(item, null=1, precision=PRECISION) for item in contrasts)
        if is_known or blocks == most:
            break
    truths = [scenario.speeds[one] - scenario.speeds[other] for one, other in pairs]
    ends = [(math.log(item.low or 0), math.log(item.high or 0)) for item in contrasts if item]
    verdicts = [(low > 0) - (high < 0) for low, high in ends]
    return Outcome(
        blocks=blocks,
        has_false_verdict=any(
            verdict and verdict * truth <= 0 for verdict, truth in zip(verdicts, truths, strict=True)
        ),
        is_covered=[low <= truth <= high for (low, high), truth in zip(ends, truths, strict=True)],
        is_found=[bool(verdict) for verdict, truth in zip(verdicts, truths, strict=True) if truth],
        share_decided=float(np.mean(decided)),
    )


def simulate_race(scenario: Scenario, draw: Draw, random: np.random.Generator) -> list[int]:
    """Run one race for speed; returns the trials that are left when one is, or after the most blocks.

    Args:
        scenario: the trials.
        draw: the noise.
        random: the source of chance.
    """
    trials, blocks = len(scenario.speeds), 0
    noise = draw(random, (trials, MOST_BLOCKS)) * np.asarray(scenario.deviations)[:, None]
    logs = noise + random.normal(0, _BLOCK_DEVIATION, MOST_BLOCKS) + np.asarray(scenario.speeds)[:, None]
    left = list(range(trials))
    while blocks < MOST_BLOCKS and len(left) > 1:
        blocks = min(next_look(blocks), MOST_BLOCKS)
        values = {str(trial): dict(enumerate(np.exp(logs[trial, :blocks]))) for trial in left}
        model = BlockModel(values, is_ratio=True, looks="race")
        best = max(left, key=lambda trial: float(logs[trial, :blocks].mean()))
        left = [trial for trial in left if trial == best or not is_below(model.against(str(trial), str(best)), 1)]
    return left


def summarize(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the shares of many sweeps of one scenario."""
    found = [item for outcome in outcomes for item in outcome.is_found]
    return {
        "blocks": float(np.mean([outcome.blocks for outcome in outcomes])),
        "false verdicts": float(np.mean([outcome.has_false_verdict for outcome in outcomes])),
        "coverage": float(np.mean([item for outcome in outcomes for item in outcome.is_covered])),
        "all": float(np.mean([all(outcome.is_covered) for outcome in outcomes])),
        "power": float(np.mean(found)) if found else math.nan,
        "decided": float(np.mean([outcome.share_decided for outcome in outcomes])),
    }


@cache
def real_residuals() -> NDArray[np.float64]:
    """Return the residuals of two identical trials, with standard deviation 1."""
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        rates = np.array([[float(row["a"]), float(row["b"])] for row in csv.DictReader(file)])
    logs = np.log(rates)
    residuals = logs - logs.mean(axis=1, keepdims=True)
    residuals = (residuals - residuals.mean(axis=0)).ravel()
    return np.asarray(residuals / residuals.std())


def _lognormal(random: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    shape = 0.6
    deviation = math.sqrt(math.expm1(shape**2) * math.exp(shape**2))
    return (random.lognormal(0, shape, size) - math.exp(shape**2 / 2)) / deviation


NOISES: Mapping[str, Draw] = {
    "normal": lambda random, size: random.standard_normal(size),
    "log-normal": _lognormal,
    "Student t(3)": lambda random, size: random.standard_t(3, size) / math.sqrt(3),
    "real residuals": lambda random, size: random.choice(real_residuals(), size),
}


def scenarios() -> list[Scenario]:
    """Return the trials that are simulated."""
    found = []
    for count in (2, 3, 4, 8):
        apart = [0.0, 0.0, *(_FAR * place for place in range(1, count - 1))]
        found += [
            Scenario(f"{count} equal, noise 8%", [0.0] * count, [0.08] * count),
            Scenario(f"{count} equal, noise 3%", [0.0] * count, [0.03] * count),
            Scenario(f"{count}, one 10% faster, noise 5%", [0.1, *[0.0] * (count - 1)], [0.05] * count),
        ]
        if count > 2:
            loud = [0.12, 0.12, *[0.02] * (count - 2)]
            found += [
                Scenario(f"{count}, two equal and the others far, noise 8%", apart, [0.08] * count),
                Scenario(f"{count} equal, noise 12% twice, else 2%", [0.0] * count, loud),
                Scenario(f"{count}, two equal with noise 12%, the others far with 2%", apart, loud),
            ]
    return found


def main() -> None:
    """Simulate and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000, help="sweeps of each scenario (default: 2000)")
    parser.add_argument("--fixed", type=int, help="number of blocks; without it, until all is decided")
    parser.add_argument("--most", type=int, default=MOST_BLOCKS, help="most blocks of a sweep (default: 30)")
    args = parser.parse_args()
    rows = []
    for scenario in scenarios():
        for noise, draw in NOISES.items():
            random = np.random.default_rng(0)
            outcomes = [
                simulate(scenario, draw, random, fixed=args.fixed, most_blocks=args.most) for _ in range(args.draws)
            ]
            rows.append({"trials": scenario.name, "noise": noise, **summarize(outcomes)})
            print(rows[-1], file=sys.stderr, flush=True)
    print(pd.DataFrame(rows).round(3).to_markdown(index=False))


if __name__ == "__main__":
    main()
