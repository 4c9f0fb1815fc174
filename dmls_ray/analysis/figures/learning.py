"""What was learned: by epoch, at which cost, and how soon: `learning`, `tradeoff` and `critical_batch`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dmls_ray.analysis.advise.rank import front_of
from dmls_ray.analysis.figures import series as plot
from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries, Point
from dmls_ray.analysis.findings.critical import BatchPoint, CriticalBatch, answer_on_critical_batch, critical_batch
from dmls_ray.analysis.findings.losers import level_text
from dmls_ray.analysis.metrics import MEMORY_METRICS
from dmls_ray.analysis.stats.intervals import Estimate, estimate
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words import headline_text, join_names

_TOGETHER = 4
"""Trials up to which the training and test curves share a panel."""

_EPOCH = PlotAxis("epoch (passes over the data)")
_SPLITS = ("test", "train")

_ACCURACY = "test_accuracy"
_AIMS = {"total_s": "less time"} | dict.fromkeys(MEMORY_METRICS, "less memory")
"""Metric -> aim."""
_BEHIND = "not on the front"

_CURVE_POINTS = 33


def learning_chart(table: Table) -> Chart | None:
    """Loss and accuracy of training and test by epoch; None if no counted run has one of at least two epochs."""
    units = {"loss": Presentation.of_trials(table.rows).loss_unit, "accuracy": "fraction of samples"}
    several = []
    for row in table.rows:
        epochs = [len(_curve(row, f"{split}_{kind}")) for kind in units for split in _SPLITS]
        if max(epochs) > 1:
            several.append(row)
    rows, notes = plot.limit_items(several, "trials")
    panels = []
    has_training = False
    for kind, unit in units.items():
        splits = [split for split in _SPLITS if any(_curve(row, f"{split}_{kind}") for row in rows)]
        has_training |= "train" in splits
        together = [[split] for split in splits]
        if splits and len(rows) <= _TOGETHER:
            together = [splits]
        for shown in together:
            y = PlotAxis(f"{' and '.join(shown)} {kind} ({unit})")
            panels.append(Panel(x=_EPOCH, y=y, series=_curves(table, rows, shown, kind)))
    if not panels:
        return None
    notes.append("A point is the mean over the runs of a trial. A curve ends where its shortest run ends.")
    if has_training:
        notes.append(
            "Training curves are means over the steps of an epoch: with dropout and augmentation, while the weights "
            "change."
        )
    return Chart(name="learning", title="Loss and accuracy by epoch", panels=panels, notes=notes)


def _curve(row: Trial, metric: str) -> dict[int, dict[int, float]]:
    """A metric by epoch and block, of the epochs that all runs of a trial have."""
    by_epoch: dict[int, dict[int, float]] = {}
    for record in row.counted:
        for item in record.epochs:
            if metric in item.metrics:
                by_epoch.setdefault(item.epoch, {})[record.repeat] = item.metrics[metric]
    blocks = {record.repeat for record in row.counted}
    return {epoch: values for epoch, values in sorted(by_epoch.items()) if values.keys() == blocks}


def _curves(table: Table, rows: Sequence[Trial], splits: Sequence[str], kind: str) -> list[PlotSeries]:
    """The curves of each trial, and rings where overfitting begins."""
    series: list[PlotSeries] = []
    rings: list[PlotSeries] = []
    for name, row in zip(plot.trial_labels(table, rows), rows, strict=True):
        # The first curve of a trial has the name that the trial has in other figures, and so its colour.
        first = name or splits[0]
        for split in splits:
            label, same_as = first, ""
            if split != splits[0]:
                label, same_as = f"{name}, {split}".removeprefix(", "), first
            metric = f"{split}_{kind}"
            by_epoch = _curve(row, metric)
            points = [(epoch, row, values) for epoch, values in by_epoch.items()]
            series += plot.measured_series(label, points, metric=metric, connected=True, same_as=same_as)
            if split == "test" and row.overfit_epoch in by_epoch:
                middle = estimate(list(by_epoch[row.overfit_epoch].values())).centre
                text = "the mean test loss rises from here beyond chance, while the train loss falls"
                ring = Point(row.overfit_epoch, middle, text=f"{first}: {text}")
                rings.append(PlotSeries("overfitting begins", [ring], "ring", same_as=first))
    return [*series, *rings]


def tradeoff_chart(table: Table) -> Chart | None:
    """The figure; None unless two trials are compared by their test accuracy and have a cost in which they differ.

    The front is that of `advise`, from `rank.front_of`.
    """
    if all(measure.name != _ACCURACY for measure in table.questions.measures(table.rows)):
        return None
    front = front_of(table, _ACCURACY)
    if len(front.rows) < 2 or len(front.axes) < 2 or _ACCURACY not in front.axes:
        return None
    # Memory is drawn even where trials hardly differ in it, so that the reader sees that.
    costs = [cost for cost in _AIMS if cost in (*front.axes, front.memory)]
    labels = plot.trial_labels(table, front.rows)
    names = dict(zip([row.trial_id for row in front.rows], labels, strict=True))
    best = [names[row.trial_id] for row in front.best]
    # Drawn first, so that it hides nothing on the front.
    on_front = {row.trial_id for row in front.best}
    groups = {_BEHIND: [row for row in front.rows if row.trial_id not in on_front]}
    for row, name in zip(front.best, best, strict=True):
        if len(best) >= plot.MAX_SERIES:
            name = "on the front"
        groups.setdefault(name, []).append(row)
    panels = [_front_panel(cost, groups, names) for cost in costs]
    goal = ", ".join(_AIMS[cost] for cost in costs if cost in front.axes)
    notes = [
        f"{len(best)} of {len(front.rows)} trials are on the front: {join_names(best)}. "
        f"No other trial is at least as good in {goal} and in accuracy, and better in one of them. The front compares "
        "means only: where intervals overlap, another trial may belong to it."
    ]
    if front.losers:
        lost = []
        for loss in front.losers:
            (label,) = plot.trial_labels(table, [loss.pair.trial])
            lost.append(f"{label} ({level_text(loss)})")
        notes.append(f"Left out of the front because they lose accuracy: {join_names(lost)}.")
    return Chart(name="tradeoff", title=f"Pareto front of {goal} and more accuracy", panels=panels, notes=notes)


def _front_panel(cost: str, groups: Mapping[str, Sequence[Trial]], names: Mapping[str, str]) -> Panel:
    """The accuracy of groups of trials against a cost; a point says the name of its trial."""

    def cost_of(row: Trial) -> float:
        return row.estimates[cost].centre

    accuracy = plot.plotted_metric(_ACCURACY)
    series: list[PlotSeries] = []
    levels: list[float] = []
    for name, rows in groups.items():
        levels += [cost_of(row) for row in rows]
        line = plot.Line(name, rows, cost_of)
        series += accuracy.series(line, describe=lambda row: names[row.trial_id], muted=name == _BEHIND)
    is_wide = plot.is_wide(levels)
    x = PlotAxis(plot.plotted_metric(cost).y.label, log=is_wide, from_zero=not is_wide)
    return Panel(x=x, y=accuracy.y, series=series)


def critical_batch_chart(table: Table) -> Chart | None:
    """The figure; None unless `critical_batch` has an answer."""
    found = critical_batch(table)
    if found is None or not any(point.steps for point in found.points):
        return None
    x = PlotAxis("global_batch (samples)", log=True, ticks=[point.batch for point in found.points])
    label = f"to a test accuracy of {found.target:g}"
    steps = _measured(found.points, lambda point: point.steps)
    seconds = _measured(found.points, lambda point: point.seconds)
    # A band lies under the points.
    with_laws = sorted([*steps, *_laws(found, steps)], key=lambda series: series.kind != "band")
    panels = [
        Panel(x=x, y=PlotAxis(f"optimizer steps {label}", log=True), series=with_laws),
        Panel(x=x, y=PlotAxis(f"seconds {label}", log=True), series=seconds),
    ]
    notes = [
        "Each batch is shown at its best learning rate, which needs the fewest steps.",
        headline_text(answer_on_critical_batch(found)),
    ]
    if any(series.kind == "band" for series in with_laws):
        notes.append(
            f"The band is the 95% interval of the critical batch, by a curve through {len(steps[0].points)} batches."
        )
    return Chart(name="critical_batch", title="Steps and time to the target", panels=panels, notes=notes)


def _measured(points: Sequence[BatchPoint], amount: Callable[[BatchPoint], Estimate | None]) -> list[PlotSeries]:
    """The batches of which all runs reached the target, with the mean, and the others."""
    known, missed = [], []
    for point in points:
        value = amount(point)
        text = f"{len(point.steps_by_repeat)} of {len(point.runs)} runs"
        rate = point.trial.records[0].config.get("lr")
        if isinstance(rate, float):
            text = f"lr {rate:g}, {text}"
        if value is None:
            missed.append(Point(point.batch, None, runs=plot.run_ids(point.runs), text=text))
        else:
            known.append(Point(point.batch, value.centre, value.low, value.high, plot.run_ids(point.runs), text))
    series = []
    if known:
        series.append(PlotSeries("best learning rate", known, connected=True))
    if missed:
        series.append(PlotSeries("not reached by all runs", missed, "cross"))
    return series


def _laws(found: CriticalBatch, measured: list[PlotSeries]) -> list[PlotSeries]:
    """Perfect scaling, the fitted curve with the critical batch, and what the gradient noise scale predicts."""
    first, value = next((point.batch, point.steps) for point in found.points if point.steps is not None)
    last = found.points[-1].batch
    ideal = [(batch, value.centre * first / batch) for batch in (first, last)]
    heights = [steps for _, steps in ideal]
    for drawn in measured:
        heights += [point.y for point in drawn.points if point.y is not None]
    bottom, top = min(heights), max(heights)
    series = [plot.dashed_line("perfect scaling", ideal)]
    upright: dict[str, float] = {}
    if found.curve is not None:
        batches = [first * (last / first) ** (step / (_CURVE_POINTS - 1)) for step in range(_CURVE_POINTS)]
        curve = [(batch, found.curve.steps(batch)) for batch in batches]
        series.append(plot.dashed_line("S_min (1 + B_crit / B)", curve))
        # The axis ends at the measured batches.
        critical = found.curve.critical
        low, high = max(critical.low or 0.0, first), min(critical.high or math.inf, last)
        if low < high:
            ends = [Point(batch, None, bottom, top) for batch in (low, high)]
            series.append(PlotSeries("critical batch, 95%", ends, "band"))
        upright["critical batch"] = critical.centre
    if found.noise_scale is not None:
        upright["gradient noise scale"] = found.noise_scale.centre
    for name, batch in upright.items():
        if first <= batch <= last:
            series.append(plot.dashed_line(name, [(batch, bottom), (batch, top)]))
    return series
