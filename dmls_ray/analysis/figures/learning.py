"""Loss and accuracy of training and test by epoch, and the epoch at which overfitting begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.series import limit_rows, measured_series, trial_labels
from dmls_ray.analysis.metrics import quantity_of
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial

_TOGETHER = 4
"""Trials up to which the training and test curves share a panel."""

_EPOCH = Axis("epoch (passes over the data)")
_OVERFITS = "overfitting begins"

_MEASURES = ("test_loss", "train_loss", "test_accuracy", "train_accuracy")


def chart(table: Table) -> Chart | None:
    """The figure; None if no counted run has a loss or an accuracy of at least two epochs.

    A point is the mean over the runs of a trial. A curve ends with the shortest run of its trial, since the mean of
    the remaining runs would jump.
    """
    tested = [row for row in table.rows if any(name in row.estimates for name in _MEASURES)]
    rows, notes = limit_rows(table, tested, lambda row: any(len(curve(row, name)) > 1 for name in _MEASURES))
    if not rows:
        return None
    names = dict(zip(trial_labels(table, rows), rows, strict=True))
    unit = table.presentation.loss_unit
    panels = []
    for kind, of_unit in (("loss", unit), ("accuracy", "fraction of samples")):
        splits = [split for split in ("test", "train") if any(curve(row, f"{split}_{kind}") for row in rows)]
        together = [splits] if len(rows) <= _TOGETHER else [[split] for split in splits]
        for shown in together:
            label = f"{' and '.join(shown)} {kind}"
            series = _series(names, shown, kind)
            if series:
                panels.append(Panel(x=_EPOCH, y=Axis(f"{label} ({of_unit})"), series=series))
    texts = [*notes]
    if any(_ends_differ(row) for row in rows):
        texts.append("A curve ends where the first of its trial's runs has ended.")
    texts += [*_on_coinciding(panels), *_on_overfitting(names)]
    return Chart(name="learning", title="Loss and accuracy by epoch", panels=panels, notes=tuple(texts))


def _ends_differ(row: Trial) -> bool:
    """Whether the runs of a trial have different numbers of epochs."""
    return len({len(record.epochs) for record in row.counted}) > 1


def curve(row: Trial, measure: str) -> dict[int, dict[int, float]]:
    """A metric by epoch and block, of the epochs that all runs of a trial have."""
    by_epoch: dict[int, dict[int, float]] = {}
    for record in row.counted:
        for item in record.epochs:
            value = item.metrics.get(measure)
            if value is not None:
                by_epoch.setdefault(item.epoch, {})[record.repeat] = value
    blocks = {record.repeat for record in row.counted}
    return {epoch: values for epoch, values in sorted(by_epoch.items()) if values.keys() == blocks}


def _series(names: Mapping[str, Trial], splits: Sequence[str], kind: str) -> list[Series]:
    series: list[Series] = []
    marks: list[tuple[int, float, str]] = []
    for name, row in names.items():
        first = ""
        for split in splits:
            # The first curve of a trial has the name that the trial has in other figures, and so its colour.
            label = name or split
            if name and first:
                label = f"{name}, {split}"
            by_epoch = curve(row, f"{split}_{kind}")
            points = [(epoch, row, values) for epoch, values in by_epoch.items()]
            metric = f"{split}_{kind}"
            series += measured_series(
                label, points, quantity=quantity_of(metric), metric=metric, connected=True, same_as=first
            )
            first = first or label
            if split == "test" and by_epoch and (epoch := row.overfit_epoch) in by_epoch:
                middle = estimate(list(by_epoch[epoch].values())).centre
                marks.append((epoch, middle, f"{name or 'the runs'} {_from_when(row)}"))
    if marks:
        x, y, texts = zip(*marks, strict=True)
        series.append(Series(name=_OVERFITS, x=x, y=y, texts=texts))
    return series


def _on_coinciding(panels: Sequence[Panel]) -> list[str]:
    """Names of the curves that are equal at every point and hide each other."""
    groups = []
    for panel in panels:
        curves: dict[tuple[object, ...], list[str]] = {}
        for series in panel.series:
            if series.connected:
                curves.setdefault((*series.x, *series.y), []).append(series.name)
        same = [" = ".join(names) for names in curves.values() if len(names) > 1]
        if same:
            groups.append(f"{panel.y.label.partition(' (')[0]}: {'; '.join(same)}")
    return [f"Equal curves hide each other: {'. '.join(groups)}."] if groups else []


def _from_when(row: Trial) -> str:
    return f"from epoch {row.overfit_epoch} (n={len(row.counted)})"


def _on_overfitting(names: Mapping[str, Trial]) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for name, row in names.items():
        if row.overfit_epoch is not None:
            by_text.setdefault(_from_when(row), []).append(name or "the runs")
    if not by_text:
        return []
    named = names.keys() != {""}
    where = "; ".join(f"{', '.join(trials)}: {text}" if named else text for text, trials in by_text.items())
    return [
        "Overfitting (the mean test loss ends above its minimum by more than chance between repeats, while the train "
        f"loss still falls): {where}."
    ]
