"""`Plotted`: what the y axis of a panel shows: a measure of the answer, or a metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dmls_ray.analysis.figures.chart import Series
from dmls_ray.analysis.figures.series import measured_series
from dmls_ray.analysis.findings.measures import Measure
from dmls_ray.analysis.memory import MEMORY, memory_metric
from dmls_ray.analysis.metrics import label_of, quantity_of, table_metrics
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_MOST_MEASURES = 3
_UNITS = ("s", "ms", "MiB", "bytes", "Mbit/s")
"""Last words of the labels of metrics."""


@dataclass(frozen=True)
class Plotted:
    """Values of trials with the label of their axis."""

    metric: str
    """A metric; empty for the speed."""
    label: str
    """With the unit."""
    from_zero: bool = False
    """Whether the axis includes 0."""

    def values(self, row: Trial) -> Mapping[int, float]:
        """The values of a trial by block; empty if it has none."""
        return row.by_block(self.metric) if self.metric else row.rates()

    def series(
        self, name: str, points: Iterable[tuple[float | str, Trial]], *, connected: bool = False
    ) -> list[Series]:
        """The values of trials with their intervals as one series; empty if no trial has a value.

        Args:
            name: name of the series.
            points: for each trial its x.
            connected: whether to join the points by a line.
        """
        measured = [(x, row, self.values(row)) for x, row in points]
        values = [value for _, _, by_block in measured for value in by_block.values()]
        quantity = quantity_of(self.metric, values) if self.metric else "rate"
        return measured_series(name, measured, quantity=quantity, metric=self.metric, connected=connected)


def plotted_metric(name: str, *, from_zero: bool = False) -> Plotted:
    """A metric on a y axis."""
    metric = table_metrics().get(name)
    if name in MEMORY:
        label = f"{MEMORY[name]} of a rank (MiB)"
    elif metric is not None and metric.share_of:
        label = f"{name.replace('_', ' ')} (fraction of samples)"
    elif name == "total_s":
        label = "run time (s)"
    else:
        label = _with_unit(label_of(name))
    return Plotted(name, label, from_zero)


def _with_unit(label: str) -> str:
    """A heading of a table as the label of an axis: `start-up s` is `start-up (s)`."""
    words, _, unit = label.rpartition(" ")
    return f"{words} ({unit})" if words and unit in _UNITS else label


def plotted_measure(measure: Measure, rows: Sequence[Trial]) -> Plotted:
    """A measure by which an answer compares these trials."""
    if measure.kind != "speed":
        return plotted_metric(measure.metric, from_zero=measure.is_ratio)
    names = {row.throughput for row in rows if row.by_block(row.throughput)}
    unit = label_of(names.pop()) if len(names) == 1 else "runs/s"
    return Plotted("", f"throughput ({unit})", from_zero=True)


def plotted_measures(table: Table, rows: Sequence[Trial]) -> list[Plotted]:
    """The measures by which the answer compares these trials, the most important first."""
    measured = [item for item in table.questions.measures(rows) if any(row.by_block(item.metric) for row in rows)]
    return [plotted_measure(item, rows) for item in measured[:_MOST_MEASURES]]


def plotted_of_question(table: Table, rows: Sequence[Trial], asked: set[str]) -> list[Plotted]:
    """The metrics that fields ask for, as far as these trials have them.

    Args:
        table: the sweep's table.
        rows: the trials.
        asked: fields and families of fields.
    """
    names = [name for name, metric in table_metrics().items() if asked & {*metric.asked_by} and table.has(name)]
    return [plotted_metric(name) for name in names if any(row.by_block(name) for row in rows)]


def plotted_memory(rows: Sequence[Trial]) -> list[Plotted]:
    """The memory of these trials, if it was measured."""
    name = memory_metric(rows)
    return [plotted_metric(name, from_zero=True)] if name else []
