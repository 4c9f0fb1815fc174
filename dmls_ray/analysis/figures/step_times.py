"""How long optimizer steps took: which share of them was done in so many milliseconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import SINGLE_LINE, limit_rows, trial_labels
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES

_FAR = 10
"""Slowest by fastest step, from which on the axis is logarithmic."""


def chart(table: Table) -> Chart | None:
    """The figure; None where no run whose times count has quantiles of its steps, as older records have not."""
    timed = [row for row in table.rows if "step_ms_p50" in row.estimates]
    rows, notes = limit_rows(table, timed, lambda row: bool(quantiles(row)))
    if not rows:
        return None
    series = [
        Series(
            name=name or SINGLE_LINE,
            x=quantiles(row),
            y=STEP_QUANTILES,
            connected=True,
            runs=[tuple(record.run_id for record in row.timed)] * len(STEP_QUANTILES),
            texts=[f"{share:.0%} of the steps" for share in STEP_QUANTILES],
        )
        for name, row in zip(trial_labels(table, rows), rows, strict=True)
    ]
    times = [value for row in rows for value in quantiles(row)]
    return Chart(
        name="step_times",
        title="Time of an optimizer step: empirical distribution",
        panels=[
            Panel(
                x=Axis("optimizer step (ms)", log=max(times) > _FAR * min(times) > 0),
                y=Axis("steps done by then (fraction)", from_zero=True),
                series=series,
            )
        ],
        notes=(*notes, "At each share the median over all ranks of all runs of a trial."),
    )


def quantiles(row: Trial) -> Sequence[float]:
    """Milliseconds at each of `STEP_QUANTILES`, the median over the ranks of the runs; empty without step times."""
    by_rank = [
        rank.step_ms_quantiles
        for record in row.timed
        for rank in record.ranks
        if len(rank.step_ms_quantiles) == len(STEP_QUANTILES)
    ]
    return [statistics.median(values) for values in zip(*by_rank, strict=True)]
