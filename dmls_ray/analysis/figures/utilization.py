"""How busy processors and GPUs were over a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.lines import SINGLE_LINE, trial_labels
from dmls_ray.analysis.figures.series import MAX_SERIES, drop_none, limit_rows
from dmls_ray.analysis.table.row import Row, Table
from dmls_ray.records.model import RunRecord

_BUSY = {
    "cpu_percent": "processor, mean of the ranks (% of a core)",
    "gpu_percent": "GPU, mean of the ranks (% of the time)",
}
_SHORT_S = 1.0
"""A run no longer than this was not looked at twice."""
_SINCE = Axis("since the run began (s)", from_zero=True)


def chart(table: Table) -> Chart | None:
    """The figure, of one run a trial: that of the middle total_s; None where none was looked at twice.

    A run is looked at twice a second, so short ones have nothing to show; nor have runs of a search, which share their
    machine.
    """
    timed = [row for row in table.rows if row.level("total_s") is not None]
    long = [row for row in timed if (row.level("total_s") or 0.0) > _SHORT_S]
    rows, notes = limit_rows(table, long, lambda row: bool(looks(middle_run(row), "cpu_percent")))
    if not rows:
        return None
    # Of more than can be told apart, not all were looked for, and `few_rows` has counted those.
    missing = len(timed) - (len(rows) if len(long) <= MAX_SERIES else len(long))
    if missing:
        short = (
            f"{missing} of {len(timed)} trials have no line: their runs ended before their processor was looked at "
            "twice, at two looks a second."
        )
        notes = (short,) if len(long) <= MAX_SERIES else (*notes, short)
    runs = {
        name or SINGLE_LINE: run
        for name, row in zip(trial_labels(table, rows), rows, strict=True)
        if (run := middle_run(row)) is not None
    }
    panels = []
    for quantity, words in _BUSY.items():
        series = drop_none(_of_run(name, run, quantity) for name, run in runs.items())
        if series:
            panels.append(Panel(x=_SINCE, y=Axis(words, from_zero=True), series=series))
    return Chart(
        name="utilization",
        title="Utilization over time",
        panels=panels,
        notes=(*notes, "One run a trial: the one whose time is in the middle."),
    )


def middle_run(row: Row) -> RunRecord | None:
    """Of the runs whose times count, the one with the middle total_s."""
    known = sorted((record for record in row.timed if record.total_s is not None), key=lambda item: item.total_s or 0.0)
    return known[(len(known) - 1) // 2] if known else None


def looks(run: RunRecord | None, quantity: str) -> Mapping[float, Sequence[float]]:
    """A quantity of a run by seconds since its start, a value a rank; empty where it was looked at less than twice.

    Ranks are looked at by clocks of their own, at nearly the same times; the time is the first one's.
    """
    series = [rank.utilization for rank in run.ranks if rank.utilization.get(quantity)] if run else []
    times: Sequence[float] = series[0].get("at_s", ()) if series else ()
    found = dict(zip(times, zip(*(each[quantity] for each in series), strict=False), strict=False))
    return found if len(found) > 1 else {}


def _of_run(name: str, run: RunRecord, quantity: str) -> Series | None:
    found = looks(run, quantity)
    if not found:
        return None
    return Series(
        name=name,
        kind="line",
        x=list(found),
        y=[statistics.fmean(ranks) for ranks in found.values()],
        connected=True,
        runs=[(run.run_id,)] * len(found),
    )
