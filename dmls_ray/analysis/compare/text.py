"""The English of `dmls-ray compare`: a headline, a table and notes."""

from __future__ import annotations

import pandas as pd

from dmls_ray.analysis.compare.basis import Change
from dmls_ray.analysis.compare.join import Difference
from dmls_ray.analysis.compare.sweeps import Pair, SweepComparison
from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import format_of, label_of
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.formatting import RATIO, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.trials.trial import factor_cells

SPARE = ("outcome", "global_batch", "n")
"""Heads of `frame` that a narrow terminal may leave out, the first first."""

_HEADS = {"speed": "speed B / A", "ratio": "B / A", "difference": "B - A"}
"""Kind of a measure -> the heading of a change."""
_DRIFT = (
    f"This metric may drift from one session to the next: a verdict needs {MIN_REPEATS} sessions of each, in turn. "
    "Versions that are values of a field of one sweep are compared within its blocks."
)


def headline(comparison: SweepComparison) -> str:
    """The verdict over all trials."""
    count = len(comparison.compared)
    if not count:
        return "No configuration ended ok in both, so nothing can be compared."
    if comparison.overall is None:
        return f"No {comparison.basis.unit} has all {count} configurations ok, so nothing is said over all."
    label = label_of(comparison.metric)
    head, effect = _HEADS[comparison.basis.measure.kind], _describe(comparison, comparison.overall)
    n = " and ".join(map(str, comparison.samples))
    return (
        f"{label}, {head} over {count} configurations: {effect}, n={n} {comparison.basis.unit}s: "
        f"{comparison.overall.verdict}."
    )


def notes(comparison: SweepComparison) -> list[str]:
    """What decides a verdict, what is not in both, and what else differs."""
    texts, unit = [], comparison.basis.unit
    if not comparison.basis.knows_drift:
        texts.append(_DRIFT)
    counts = [len(values) for pair in comparison.compared for values in pair.samples]
    fewest = min(counts, default=MIN_REPEATS)
    is_exact = comparison.metric in EXACT and unit == "repeat"
    if fewest < MIN_REPEATS and not is_exact:
        texts.append(f"A verdict needs {MIN_REPEATS} {unit}s of each; there are n={fewest}.")
    for side, names in comparison.only.items():
        if names:
            texts.append(f"Only in {side}: {len(names)} configurations ({'; '.join(names[:4])}).")
    return [*texts, *map(_describe_difference, comparison.provenance)]


def _describe_difference(difference: Difference) -> str:
    """`versions torch: 2.9 in A, 2.10 in B`. Digests of code and data say nothing to a reader."""
    if difference.name.startswith(("code ", "data ")):
        return f"{difference.name} differs."
    a, b = (" and ".join(values) or "unknown" for values in (difference.a, difference.b))
    return f"{difference.name}: {a} in A, {b} in B."


def frame(comparison: SweepComparison) -> pd.DataFrame:
    """A row a trial of both, as texts."""
    rows = []
    for pair in comparison.pairs:
        cells = _cells(comparison, pair)
        rows.append(factor_cells(pair.a.factors, other_headers=cells) | cells)
    return pd.DataFrame(rows, columns=field_names(rows), dtype=object)


def _cells(comparison: SweepComparison, pair: Pair) -> dict[str, str]:
    label, form = label_of(comparison.metric), format_of(comparison.metric)
    outcome = pair.a.outcome
    if pair.b.outcome != outcome:
        outcome = f"{outcome} in A, {pair.b.outcome} in B"
    return {
        f"A {label} [95%]": format_interval(pair.means[0], form),
        f"B {label} [95%]": format_interval(pair.means[1], form),
        f"{_HEADS[comparison.basis.measure.kind]} [95% of all rows]": _describe(comparison, pair.change),
        "n": ", ".join(str(len(values)) for values in pair.samples),
        "verdict": pair.verdict,
        "outcome": outcome,
    }


def _describe(comparison: SweepComparison, change: Change | None) -> str:
    if change is None:
        return ""
    measure = comparison.basis.measure
    form = RATIO if measure.is_ratio else with_sign(format_of(comparison.metric))
    return format_interval(change, form, null=measure.null)
