"""Utilization of processors and GPUs over a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import MAX_SERIES, SINGLE_LINE, limit_rows, trial_labels
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord

_BUSY = {
    "cpu_percent": "CPU utilization, mean over ranks (% of a core)",
    "gpu_percent": "GPU utilization, mean over ranks (%)",
}
_SHORT_S = 1.0
"""A shorter run was not sampled twice."""
_SINCE = Axis("time since the start of the run (s)", from_zero=True)


def chart(table: Table) -> Chart | None:
    """The figure, with one run per trial: the one with the median total_s. None if no run was sampled twice.

    Utilization is sampled twice a second, so short runs are left out. So are runs of a search, which share a machine.
    """
    timed = [row for row in table.rows if row.value_of("total_s") is not None]
    long = [row for row in timed if (row.value_of("total_s") or 0.0) > _SHORT_S]
    rows, notes = limit_rows(table, long, lambda row: bool(samples(middle_run(row), "cpu_percent")))
    if not rows:
        return None
    # With more trials than distinguishable lines, `limit_rows` has checked and counted only some.
    missing = len(timed) - (len(rows) if len(long) <= MAX_SERIES else len(long))
    if missing:
        short = (
            f"{missing} of {len(timed)} trials have no line: their runs ended before the second sample of their "
            "processor, at two samples a second."
        )
        notes = (short,) if len(long) <= MAX_SERIES else (*notes, short)
    runs = {
        name or SINGLE_LINE: run
        for name, row in zip(trial_labels(table, rows), rows, strict=True)
        if (run := middle_run(row)) is not None
    }
    panels = []
    for quantity, label in _BUSY.items():
        series = [_of_run(name, run, quantity) for name, run in runs.items() if samples(run, quantity)]
        if series:
            panels.append(Panel(x=_SINCE, y=Axis(label, from_zero=True), series=series))
    return Chart(
        name="utilization",
        title="Utilization over time",
        panels=panels,
        notes=(*notes, "One run per trial: the one with the median time."),
    )


def middle_run(row: Trial) -> RunRecord | None:
    """The timed run with the median total_s."""
    timed = sorted(
        (record for record in row.timed if "total_s" in record.metrics), key=lambda item: item.metrics["total_s"]
    )
    return timed[(len(timed) - 1) // 2] if timed else None


def samples(run: RunRecord | None, quantity: str) -> Mapping[float, Sequence[float]]:
    """Samples of a quantity by seconds since the start of the run, one value per rank; empty with fewer than two.

    Each rank has its own clock; the times are those of the first rank.
    """
    series = [rank.utilization for rank in run.ranks if rank.utilization.get(quantity)] if run else []
    times: Sequence[float] = series[0].get("at_s", ()) if series else ()
    by_time = dict(zip(times, zip(*(rank[quantity] for rank in series), strict=False), strict=False))
    return by_time if len(by_time) > 1 else {}


def _of_run(name: str, run: RunRecord, quantity: str) -> Series:
    by_time = samples(run, quantity)
    return Series(
        name=name,
        kind="line",
        x=list(by_time),
        y=[statistics.fmean(ranks) for ranks in by_time.values()],
        connected=True,
        runs=[(run.run_id,)] * len(by_time),
    )
