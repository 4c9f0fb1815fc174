"""Loss and accuracy of training and test by epoch, and the epoch at which overfitting begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Point, Series
from dmls_ray.analysis.figures.drawn_trials import SINGLE_LINE, limit_rows
from dmls_ray.analysis.figures.series import measured_series
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_TOGETHER = 4
"""Trials up to which the training and test curves share a panel."""

_EPOCH = Axis("epoch (passes over the data)")
_OVERFITS = "overfitting begins"
_METRICS = ("test_loss", "train_loss", "test_accuracy", "train_accuracy")


def chart(table: Table) -> Chart | None:
    """The figure; None if no counted run has a loss or an accuracy of at least two epochs."""
    tested = [row for row in table.rows if not row.estimates.keys().isdisjoint(_METRICS)]
    rows, notes = limit_rows(table, tested, lambda row: any(len(curve(row, name)) > 1 for name in _METRICS))
    panels = []
    for kind, unit in (("loss", table.presentation.loss_unit), ("accuracy", "fraction of samples")):
        splits = [split for split in ("test", "train") if any(curve(row, f"{split}_{kind}") for row in rows.values())]
        together = [[split] for split in splits]
        if splits and len(rows) <= _TOGETHER:
            together = [splits]
        for shown in together:
            y = Axis(f"{' and '.join(shown)} {kind} ({unit})")
            panels.append(Panel(x=_EPOCH, y=y, series=_series(rows, shown, kind)))
    if not panels:
        return None
    notes.append("A point is the mean over the runs of a trial; a curve ends with the shortest of them.")
    if any(series.kind == "ring" for panel in panels for series in panel.series):
        notes.append(
            "Overfitting: the mean test loss ends above its minimum by more than chance between repeats, while the "
            "train loss still falls."
        )
    return Chart(name="learning", title="Loss and accuracy by epoch", panels=panels, notes=notes)


def curve(row: Trial, metric: str) -> dict[int, dict[int, float]]:
    """A metric by epoch and block, of the epochs that all runs of a trial have."""
    by_epoch: dict[int, dict[int, float]] = {}
    for record in row.counted:
        for item in record.epochs:
            if metric in item.metrics:
                by_epoch.setdefault(item.epoch, {})[record.repeat] = item.metrics[metric]
    blocks = {record.repeat for record in row.counted}
    return {epoch: values for epoch, values in sorted(by_epoch.items()) if values.keys() == blocks}


def _series(rows: Mapping[str, Trial], splits: Sequence[str], kind: str) -> list[Series]:
    """The curves of each trial, and rings where overfitting begins."""
    series: list[Series] = []
    rings = []
    for name, row in rows.items():
        for split in splits:
            # The first curve of a trial has the name that the trial has in other figures, and so its colour.
            label, first = f"{name}, {split}", name
            if name == SINGLE_LINE:
                label, first = split, splits[0]
            elif split == splits[0]:
                label = name
            metric = f"{split}_{kind}"
            by_epoch = curve(row, metric)
            points = [(epoch, row, values) for epoch, values in by_epoch.items()]
            same_as = first if label != first else ""
            series += measured_series(label, points, metric=metric, connected=True, same_as=same_as)
            if split == "test" and row.overfit_epoch in by_epoch:
                middle = estimate(list(by_epoch[row.overfit_epoch].values())).centre
                rings.append(Point(row.overfit_epoch, middle, text=f"{name}, n={len(row.counted)}"))
    if rings:
        series.append(Series(_OVERFITS, rings, "ring"))
    return series
