"""Utilization of processors and GPUs over a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Point, Series
from dmls_ray.analysis.figures.drawn_trials import limit_rows
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord

_BUSY = {
    "cpu_percent": "CPU utilization, mean over ranks (% of a core)",
    "gpu_percent": "GPU utilization, mean over ranks (%)",
}
_SINCE = Axis("time since the start of the run (s)", from_zero=True)


def chart(table: Table) -> Chart | None:
    """The figure, with one run per trial: the one with the median total_s. None if no run was sampled twice.

    Runs of a search are left out, since they share a machine.
    """
    timed = [row for row in table.rows if row.value_of("total_s") is not None]
    rows, notes = limit_rows(table, timed, lambda row: bool(samples(middle_run(row), "cpu_percent")))
    panels = []
    for quantity, label in _BUSY.items():
        series = []
        for name, row in rows.items():
            run = middle_run(row)
            points = [Point(at_s, value, runs=(run.run_id,)) for at_s, value in samples(run, quantity)]
            if points:
                series.append(Series(name, points, "line"))
        if series:
            panels.append(Panel(x=_SINCE, y=Axis(label, from_zero=True), series=series))
    if not panels:
        return None
    notes.append(
        "One run per trial: the one with the median time. Utilization is sampled twice a second, so that a run of less "
        "than a second has no line."
    )
    return Chart(name="utilization", title="Utilization over time", panels=panels, notes=notes)


def middle_run(row: Trial) -> RunRecord:
    """The timed run with the median total_s."""
    timed = [record for record in row.timed if "total_s" in record.metrics]
    timed.sort(key=lambda record: record.metrics["total_s"])
    return timed[(len(timed) - 1) // 2]


def samples(run: RunRecord, quantity: str) -> Sequence[tuple[float, float]]:
    """Seconds since the start of the run, and the mean of a quantity over the ranks; empty with fewer than two.

    Each rank has its own clock; the times are those of the first rank.
    """
    ranks = [rank.utilization for rank in run.ranks if rank.utilization.get(quantity)]
    if not ranks:
        return []
    means = [statistics.fmean(values) for values in zip(*(rank[quantity] for rank in ranks), strict=False)]
    by_time = list(zip(ranks[0]["at_s"], means, strict=False))
    return by_time if len(by_time) > 1 else []
