"""How many changes that do nothing `dmls-ray ab --metric` keeps, and how many that help: simulations.

A change is kept if it is better beyond chance. Runs of both revisions have normal noise of standard deviation 1, which
pairs by seed do not share: the worst case. `auto` repeats until it is decided, for 30 repeats at most. `named` has the
number of repeats that `dmls-ray doctor --metric` names for a change of this size, from 12 repeats of a setting against
itself. `better mean` keeps what looks better in one run of each, as a loop without intervals does.

    python benchmarks/gains.py [--loops 200]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import print_table
from dmls_ray.analysis.stats.block_model import BlockModel, Contrast
from dmls_ray.analysis.stats.looks import FIRST_LOOK, Looks, next_look

CHANGES = 60
"""Of a loop."""
SIZE = 2.0
"""Of a change that helps, in standard deviations of a run."""
MOST_REPEATS = 30
PILOT = 12
POWER = 0.8
_FAMILIES = 2
"""The metric and the memory share the errors of an answer."""

Values = NDArray[np.float64]
"""Of shape (2, repeats): the runs of both revisions."""


def contrast_of(values: Values, looks: Looks = "none") -> Contrast:
    """The second revision against the first."""
    rows = {name: dict(enumerate(row.tolist())) for name, row in zip("ab", values, strict=True)}
    model = BlockModel(rows, is_ratio=False, resolution=0.0, looks=looks, families=_FAMILIES)
    found = model.against("b", "a")
    assert found is not None
    return found


def is_better(contrast: Contrast) -> bool:
    """Whether more is better beyond chance."""
    return contrast.ends[0] > 0


def kept_by_auto(values: Values) -> bool:
    """Whether it is kept where runs are repeated until that is decided."""
    repeats = FIRST_LOOK
    while True:
        contrast = contrast_of(values[:, :repeats], "last" if repeats == MOST_REPEATS else "open")
        low, high = contrast.ends
        if repeats == MOST_REPEATS or low > 0 or high < 0:
            return is_better(contrast)
        repeats = min(next_look(repeats), MOST_REPEATS)


def named_repeats(random: np.random.Generator) -> int:
    """The number of repeats that doctor names for a change of `SIZE`; the most where it names none."""
    after = contrast_of(random.normal(size=(2, PILOT))).half_width_after
    assert after is not None
    counts = range(FIRST_LOOK, MOST_REPEATS)
    return next((count for count in counts if after(count, POWER) <= SIZE), MOST_REPEATS)


def kept(size: float, random: np.random.Generator) -> Mapping[str, bool]:
    """Whether a change of a size is kept, by each way."""
    values = random.normal(size=(2, MOST_REPEATS)) + np.array([[0.0], [size]])
    named = values[:, : named_repeats(random)]
    return {
        "auto": kept_by_auto(values),
        "named": is_better(contrast_of(named)),
        "better mean": bool(values[1, 0] > values[0, 0]),
    }


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=200)
    args = parser.parse_args()
    random = np.random.default_rng(0)
    rows = []
    for size in (0.0, SIZE):
        found = [kept(size, random) for _ in range(args.loops * CHANGES)]
        shares = {way: f"{np.mean([one[way] for one in found]):.1%}" for way in found[0]}
        rows.append({"change, standard deviations": f"{size:g}", "simulated": str(len(found))} | shares)
    print_table(rows)


if __name__ == "__main__":
    main()
