"""How often the intervals and verdicts of a sweep are right: simulations of the complete procedure.

A sweep repeats until every comparison of its trials is decided and not rough, or known to 5%, or it has all blocks that
it may have, and then states its verdicts, by all measures of its answer: speed and accuracy, of some four measures.
`false verdicts` is the share of sweeps with at least one: a trial is called faster, or more accurate, that is not.
`coverage` is the share of intervals that contain the truth, `all` the share of sweeps in which all do. `power` is the
share of true differences that are found.

The noise is drawn from a distribution, or with replacement from the residuals of two identical trials in 400 blocks:

    python sweeps/batch_size.py --batch-per-rank 32 --world-size 1 --lr 0.001 0.0010000001 --repeats 400
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.analysis.stats.block_model import BlockModel, Contrast, is_decided, is_rough
from dmls_ray.analysis.stats.intervals import is_below
from dmls_ray.analysis.stats.looks import Looks, next_look

RESIDUALS = Path(__file__).parents[1] / "results" / "reference" / "identical_trials.csv"
MOST_BLOCKS = 30
PRECISION, EQUIVALENT = 0.05, 0.02
TEST_SAMPLES = 360
_BLOCK_DEVIATION = 0.1
"""Of what the machine does to all trials of a block. It has no influence on differences within a block."""
_FAR = 3.0

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
"""Noise of standard deviation 1, a row a trial and a column a block."""


@dataclass(frozen=True)
class Measured:
    """The true values of some trials by one measure, and the standard deviations of their noise."""

    truths: Sequence[float]
    """Logarithms of a speed, or accuracies."""
    deviations: Sequence[float]
    is_ratio: bool = True
    """Whether it is a speed; else an accuracy, on `TEST_SAMPLES`."""

    def draw(self, draw: Draw, random: np.random.Generator, blocks: int) -> NDArray[np.float64]:
        """The values of runs, of shape (trials, blocks)."""
        noise = draw(random, (len(self.truths), blocks))
        return self.values(noise, np.zeros_like(noise), random)

    def values(
        self, noise: NDArray[np.float64], offsets: NDArray[np.float64], random: np.random.Generator
    ) -> NDArray[np.float64]:
        """The values of runs with this noise and these offsets, all of shape (trials, blocks)."""
        values = noise * np.asarray(self.deviations)[:, None] + np.asarray(self.truths)[:, None] + offsets
        if self.is_ratio:
            return np.asarray(np.exp(values + random.normal(0, _BLOCK_DEVIATION, noise.shape[1])))
        return np.round(values * TEST_SAMPLES) / TEST_SAMPLES

    def model(self, values: NDArray[np.float64], looks: Looks, measures: int) -> BlockModel:
        """How the trials compare after some blocks, in an answer with so many measures."""
        return BlockModel(
            {str(trial): dict(enumerate(row.tolist())) for trial, row in enumerate(values)},
            is_ratio=self.is_ratio,
            resolution=0.0 if self.is_ratio else 1 / TEST_SAMPLES,
            looks=looks,
            families=measures,
        )

    @property
    def null(self) -> float:
        """The value of a comparison that means no difference."""
        return 1.0 if self.is_ratio else 0.0

    def is_known(self, contrast: Contrast | None) -> bool:
        """Whether a comparison is decided, and not only roughly."""
        if contrast is None or not self.is_decided(contrast):
            return False
        return not is_rough(contrast, null=self.null, precision=PRECISION)

    def is_decided(self, contrast: Contrast) -> bool:
        """Whether more repeats of a comparison have no use."""
        return is_decided(contrast, null=self.null, precision=PRECISION, equivalent=EQUIVALENT)

    def ends(self, contrast: Contrast) -> tuple[float, float]:
        """The ends of an interval, on the scale of `truths`."""
        low, high = contrast.low or 0.0, contrast.high or 0.0
        return (math.log(low), math.log(high)) if self.is_ratio else (low, high)


@dataclass(frozen=True)
class Plan:
    """How many blocks a sweep has."""

    name: str = "auto"
    fixed: int | None = None
    """A number that was given; without it, until all is decided."""
    most: int = MOST_BLOCKS


@dataclass(frozen=True)
class Scenario:
    """Trials with the measures of their answer."""

    name: str
    measures: Sequence[Measured]
    plan: Plan = Plan()

    @property
    def trials(self) -> int:
        return len(self.measures[0].truths)


@dataclass(frozen=True)
class Outcome:
    """What one sweep says."""

    blocks: int
    has_false_verdict: bool
    is_covered: Sequence[bool]
    """Of each pair by each measure: whether the interval contains the truth."""
    is_found: Sequence[bool]
    """Of each pair that differs: whether the sweep says so."""
    share_decided: float


def simulate(scenario: Scenario, draw: Draw, random: np.random.Generator) -> Outcome:
    """Run one sweep.

    Args:
        scenario: the trials.
        draw: the noise.
        random: the source of chance.
    """
    fixed, most = scenario.plan.fixed, scenario.plan.fixed or scenario.plan.most
    values = [measure.draw(draw, random, most) for measure in scenario.measures]
    blocks = fixed or 0
    while True:
        blocks = fixed or min(next_look(blocks), most)
        looks: Looks = "none" if fixed else "last" if blocks == most else "open"
        models = [
            measure.model(runs[:, :blocks], looks, len(scenario.measures))
            for measure, runs in zip(scenario.measures, values, strict=True)
        ]
        if blocks == most or are_known(scenario.measures, models):
            return outcome_of(scenario.measures, models, blocks)


def are_known(measures: Sequence[Measured], models: Sequence[BlockModel]) -> bool:
    """Whether every comparison is decided, and not only roughly."""
    pairs = itertools.combinations(range(len(measures[0].truths)), 2)
    return all(
        measure.is_known(model.against(str(one), str(other)))  # up to the first comparison that is open
        for one, other in pairs
        for measure, model in zip(measures, models, strict=True)
    )


def outcome_of(measures: Sequence[Measured], models: Sequence[BlockModel], blocks: int) -> Outcome:
    """What a sweep says after its last look, and whether that is right."""
    pairs = list(itertools.combinations(range(len(measures[0].truths)), 2))
    covered, is_found, decided, false = [], [], [], False
    for measure, model in zip(measures, models, strict=True):
        for one, other in pairs:
            contrast = model.against(str(one), str(other))
            assert contrast is not None  # all blocks have all trials
            truth = measure.truths[one] - measure.truths[other]
            low, high = measure.ends(contrast)
            verdict = (low > 0) - (high < 0)
            covered.append(low <= truth <= high)
            false |= verdict * truth < 0 or (verdict != 0 and truth == 0)
            is_found += [verdict != 0] if truth else []
            decided.append(measure.is_decided(contrast))
    return Outcome(blocks, false, covered, is_found, float(np.mean(decided)))


def simulate_race(scenario: Scenario, draw: Draw, random: np.random.Generator) -> list[int]:
    """Run one race for speed; returns the trials that are left when one is, or after the most blocks.

    Args:
        scenario: the trials.
        draw: the noise.
        random: the source of chance.
    """
    measure, *others = scenario.measures
    values, blocks = measure.draw(draw, random, MOST_BLOCKS), 0
    left = list(range(scenario.trials))
    while blocks < MOST_BLOCKS and len(left) > 1:
        blocks = min(next_look(blocks), MOST_BLOCKS)
        model = measure.model(values[left, :blocks], "race", 1 + len(others))
        best = max(range(len(left)), key=lambda place: float(np.log(values[left[place], :blocks]).mean()))
        left = [
            trial
            for place, trial in enumerate(left)
            if place == best or not is_below(model.against(str(place), str(best)), 1)
        ]
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


def speed_and_accuracy(
    speeds: Sequence[float], deviations: Sequence[float], *, spread: Sequence[float] | None = None, measures: int = 2
) -> list[Measured]:
    """Return the measures of an answer: a speed, equal accuracies, and more that are like the speed without effects.

    Args:
        speeds: logarithms of the trials' speeds.
        deviations: of their noise.
        spread: standard deviations of their accuracies; without it, a point.
        measures: how many.
    """
    count = len(speeds)
    accuracy = Measured([0.95] * count, spread or [0.01] * count, is_ratio=False)
    more = [Measured([0.0] * count, deviations)] * (measures - 2)
    return [Measured(speeds, deviations), accuracy, *more]


FEW = (Plan("3", fixed=3), Plan("5", fixed=5), Plan("auto, at most 4", most=4))
"""Plans with few repeats. `--max-repeats 3` is `--repeats 3`: there is one look."""


def scenarios() -> list[Scenario]:
    """Return the trials that are simulated."""
    found: list[Scenario] = []

    def add(name: str, measures: Sequence[Measured], plans: Sequence[Plan] = (Plan(),)) -> None:
        found.extend(Scenario(name, measures, plan) for plan in plans)

    for count in (2, 3, 4, 8):
        equal = [0.0] * count
        apart = [0.0, 0.0, *(_FAR * place for place in range(1, count - 1))]
        add(f"{count} equal, noise 8%", speed_and_accuracy(equal, [0.08] * count), [Plan(), *FEW])
        add(f"{count} equal, noise 3%", speed_and_accuracy(equal, [0.03] * count))
        add(f"{count}, one 10% faster, noise 5%", speed_and_accuracy([0.1, *equal[1:]], [0.05] * count))
        add(f"{count}, one 20% faster, noise 5%", speed_and_accuracy([0.2, *equal[1:]], [0.05] * count), FEW)
        add(f"{count} equal, four measures", speed_and_accuracy(equal, [0.08] * count, measures=4))
        if count > 2:
            loud = [0.12, 0.12, *[0.02] * (count - 2)]
            add(f"{count}, two equal and the others far, noise 8%", speed_and_accuracy(apart, [0.08] * count))
            add(f"{count} equal, noise 12% twice, else 2%", speed_and_accuracy(equal, loud))
            add(f"{count}, two equal with noise 12%, the others far with 2%", speed_and_accuracy(apart, loud))
            one = [0.12, *[0.02] * (count - 1)]
            measures = speed_and_accuracy(equal, one, spread=[0.03, *[0.005] * (count - 1)])
            add(f"{count} equal, one with 6 times the noise of the others", measures, FEW)
    return found


def simulated(scenario: Scenario, noise: str, draws: int) -> dict[str, object]:
    """Return a row of the table: the shares of so many sweeps."""
    random = np.random.default_rng(0)
    outcomes = [simulate(scenario, NOISES[noise], random) for _ in range(draws)]
    return {"trials": scenario.name, "repeats": scenario.plan.name, "noise": noise, **summarize(outcomes)}


def print_simulated(about: str | None, simulate_one: Callable[..., dict[str, object]], cases: Iterable[Any]) -> None:
    """Simulate each case, given by its arguments but the number of draws, and print a table with a row for each."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000, help="sweeps of each case (default: 2000)")
    parser.add_argument("--processes", type=int, default=2, help="(default: 2)")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.processes) as pool:
        tasks = [pool.submit(simulate_one, *case, args.draws) for case in cases]
        rows = []
        for task in tasks:
            rows.append(task.result())
            print(rows[-1], file=sys.stderr, flush=True)
    print(markdown(pd.DataFrame(rows).round(3)))


if __name__ == "__main__":
    print_simulated(__doc__, simulated, itertools.product(scenarios(), NOISES))
