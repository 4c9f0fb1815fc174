"""All numbers, intervals and verdicts of the reference sweeps: `python -m tests.reference_values` writes them again.

Sentences may change with their wording. These values follow from the runs alone.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmls_ray import load
from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.advise.rank import advise
from dmls_ray.analysis.compare.sweeps import SweepComparison, compare_sweeps
from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.question import claims_of
from dmls_ray.analysis.prices import machine_type, with_prices
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.model import Table
from dmls_ray.config.options import Until
from dmls_ray.util.errors import ConfigError
from tests.conftest import PROJECT

REFERENCE = PROJECT / "results" / "reference"
FOLDERS = sorted(path.parent for path in REFERENCE.glob("**/runs.jsonl"))
NAME = "values.json"
"""File of a folder with the values of its runs."""
OPTIONS = {"time-to-accuracy": {"target": 0.8}}
DIGITS = 9


def values_of(folder: Path) -> dict[str, Any]:
    """What the runs of a folder say: rows of the table, comparisons, advice, and its first half against its second."""
    results = load(folder)
    summary = summarize(results)
    claims = claims_of(summary.table, summary.question.varied)
    return {
        "rows": _rows(summary.table),
        "claims": [_claim(claim) for claim in claims],
        "advice": {name: _advice(results, name) for name in sorted(OBJECTIVES)},
        "compare": _comparison(results),
    }


def _rows(table: Table) -> dict[str, Any]:
    return {
        row.trial_id: {
            "factors": row.factors,
            "n": len(row.counted),
            "outcome": row.outcome,
            "speed_up": _interval(row.speed_up),
            "metrics": {name: _interval(value) for name, value in sorted(row.estimates.items())},
        }
        for row in table.rows
    }


def _claim(claim: Effect) -> dict[str, Any]:
    until = Until()
    return {
        "trials": [claim.pair.trial.trial_id, claim.pair.base.trial_id],
        "measure": claim.measure.name,
        "interval": _interval(claim.contrast),
        "sign": claim.sign,
        "is_equal": replace(claim, until=until).verdict == "equal",
        "is_decided": replace(claim, until=until).is_decided,
    }


def _advice(results: Results, name: str) -> Any:
    try:
        if name == "cost":
            types = {machine_type(record) for record in results.records}
            results = with_prices(results, [f"{item}=1" for item in types])
        advice = advise(results, name, **OPTIONS.get(name, {}))  # type: ignore[arg-type]
    except ConfigError:
        return "not possible"
    return {
        "best": advice.best and advice.best.row.trial_id,
        "not distinguished": [row.trial_id for row in advice.with_verdict("not distinguished")],
        "worse": [row.trial_id for row in advice.with_verdict("worse")],
        "not compared": [row.trial_id for row in advice.with_verdict("not compared")],
        "unable": {item.row.trial_id: item.verdict for item in advice.excluded},
        "front": sorted(advice.front),
    }


def _comparison(results: Results) -> Any:
    """The first half of the repeats against the others, by every measure that has one."""
    middle = (max(record.repeat for record in results.records) + 1) // 2
    halves = (
        results.of([record for record in results.records if (record.repeat < middle) == is_first])
        for is_first in (True, False)
    )
    try:
        found = compare_sweeps(*halves)
    except ConfigError:
        return "not possible"
    return {"measure": found.metric, "overall": _change(found), "rows": [pair.verdict for pair in found.pairs]}


def _change(found: SweepComparison) -> Any:
    return found.overall and [_interval(found.overall.contrast), found.basis.verdict(found.overall)]


def _interval(value: Interval | None) -> list[float | None] | None:
    return None if value is None else [_number(end) for end in (value.centre, value.low, value.high)]


def _number(value: float | None) -> Any:
    if value is None or not math.isfinite(value):
        return None if value is None else str(value)
    return float(f"{value:.{DIGITS}g}")


def main() -> None:
    """Write the values of all folders."""
    for folder in FOLDERS:
        text = json.dumps(values_of(folder), indent=1, sort_keys=True, default=str)
        (folder / NAME).write_text(f"{text}\n")


if __name__ == "__main__":
    main()
