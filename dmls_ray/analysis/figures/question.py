"""What a sweep asks, against the axis that it asks about: what each trial reached, each change, a search, int8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from dmls_ray.analysis.figures import series as plot
from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries, Point
from dmls_ray.analysis.findings.answer import axis_that_varies
from dmls_ray.analysis.findings.measures import measure_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.axis import count_values, group_by_other_factors
from dmls_ray.analysis.trials.common_metrics import memory_metric
from dmls_ray.analysis.trials.trial import Trial, describe_changes, describe_configuration, name_of_change
from dmls_ray.config.grid import BASELINE

_MOST_LINES = 4
"""Lines of a panel whose points have intervals side by side, and panels of a quantity."""
_MOST_FIELDS = 5
"""Fields of a search that have a panel."""

_TO_THE_END = "trained to the end"

QUANTIZATION = "quantization"
_QUANTIZED = {
    "test_accuracy": PlotAxis("test accuracy (fraction of samples)"),
    "checkpoint_bytes": PlotAxis("size of the checkpoint (bytes)", from_zero=True),
    "compiled_ms_p50": PlotAxis("median latency, compiled (ms)", from_zero=True),
}
"""Metric of fp32 and of int8 without its prefix -> its axis."""


def answer_chart(table: Table) -> Chart | None:
    """Throughput, accuracy, memory and whatever else the answer compares, against the axis that was asked about.

    None if no two trials differ only in the axis. Where only one value of it was measured, the axis is the one that
    the answer goes along. Many lines are small multiples, and leave the memory out.
    """
    together = plot.trained_together(table.rows)
    rows = plot.measured(together)
    if not (table.axis and rows):
        return None
    axis = axis_that_varies(table, table.axis)
    x, lines = plot.lines_along(table, together, axis)
    lines = [line for line in lines if len(plot.measured(line.rows)) > 1]
    multiples, notes = _multiples(table, lines)

    families = {spec.name: spec.setting.family for spec in table.varied_specs}
    asked = {axis, families.get(axis, axis)}
    plotted = plot.plotted_measures(table, rows) + plot.plotted_of_question(table, rows, asked)
    memory = memory_metric(rows)
    if memory and len(multiples) == 1:
        plotted.append(plot.plotted_metric(memory, from_zero=True))
    panels = []
    for item in plotted:
        for title, shown in multiples:
            for panel in plot.line_panels([item], x, shown):
                panels.append(replace(panel, title=title, series=[*panel.series, *_best_rates(rows, item, shown)]))
    if not panels:
        return None
    return Chart(name="answer", title=f"{_describe_panels(panels)} against {axis}", panels=panels, notes=notes)


def _multiples(table: Table, lines: Sequence[plot.Line]) -> tuple[list[tuple[str, list[plot.Line]]], list[str]]:
    """Panels with title and lines, and notes: many lines have one for each value of the field with fewest, but lr."""
    rows = [line.rows[-1] for line in lines]
    fields = plot.differing_fields(table, rows)
    if len(lines) <= _MOST_LINES or len(fields) < 2:
        shown, notes = plot.limit_items(lines, "lines")
        return [("", shown)], notes
    field = min([name for name in fields if name != "lr"], key=lambda name: count_values(rows, name))
    fields.remove(field)
    multiples: dict[str, list[plot.Line]] = {}
    for line, row in zip(lines, rows, strict=True):
        named = replace(line, title=plot.trial_label(row, fields))
        multiples.setdefault(plot.trial_label(row, [field]), []).append(named)
    return plot.limit_items(list(multiples.items()), f"values of {field}", _MOST_LINES)


def _best_rates(rows: Sequence[Trial], plotted: plot.Plotted, lines: Sequence[plot.Line]) -> list[PlotSeries]:
    """A ring around each trial with the best mean loss or accuracy of those that differ in lr alone."""
    measure = measure_of(plotted.metric, "level")
    if not measure.is_result:
        return []
    lines_of: dict[str, plot.Line] = {}
    for line in lines:
        lines_of |= {row.trial_id: line for row in line.rows}
    rings = []
    for group in group_by_other_factors([row for row in rows if plotted.values(row)], {"lr"}):
        best = max(group, key=lambda row: measure.better * (row.value_of(plotted.metric) or 0.0))
        if best.trial_id in lines_of and len(group) > 1:
            line = lines_of[best.trial_id]
            text = f"lr {plot.format_factor(best.factors['lr'])}"
            ring = Point(line.place(best), best.value_of(plotted.metric), text=text)
            rings.append(PlotSeries("best mean of all lr", [ring], "ring", same_as=line.name))
    return rings


def changes_chart(table: Table) -> Chart | None:
    """What each change does that was made alone: a category for each change, and the baseline as a line.

    None where nothing was changed one at a time, or no trial with a change was measured.
    """
    rows = plot.trained_together(table.rows)
    changed = [row for row in rows if describe_changes(row, table.changed)]
    measured = plot.measured(changed)
    if not measured:
        return None
    change_of = partial(name_of_change, changed=table.changed)
    lines = plot.lines_of_groups(table, group_by_other_factors(rows, table.changed), table.changed, change_of)
    lines, notes = plot.limit_items(lines, "groups of changes", _MOST_LINES)
    plotted = plot.plotted_measures(table, measured) + plot.plotted_of_question(table, measured, table.asked)
    if not plotted:
        return None
    plotted.sort(key=lambda item: not item.metric)  # what was learned, then the speed
    x = PlotAxis("change", categories=list(dict.fromkeys(change_of(row) for row in changed)))
    panels = []
    for item in plotted:
        series: list[PlotSeries] = []
        for line in lines:
            series += _changes_and_baseline(line, item, x)
        panels.append(Panel(x=x, y=replace(item.y, from_zero=False), series=series))
    if len(changed) < len(rows):
        notes = [f"The line and the band around it show the {BASELINE} and its interval.", *notes]
    title = f"{_describe_panels(panels)} by change"
    return Chart(name="changes", title=title, panels=panels, notes=notes)


def _changes_and_baseline(line: plot.Line, plotted: plot.Plotted, x: PlotAxis) -> list[PlotSeries]:
    """The changes of a line as points, and its baseline as a line with its interval."""
    changes = replace(line, rows=[row for row in line.rows if line.place(row) != BASELINE])
    title = f"{BASELINE}, {line.title}".removesuffix(", ")
    baseline = replace(line, title=title, rows=[row for row in line.rows if line.place(row) == BASELINE])
    series = plotted.series(changes) + plot.lost_crosses(changes)
    for base in plotted.series(baseline, kind="line", dashed=True, same_as=line.name):
        ends = [base.points[0]._replace(x=x.categories[end]) for end in (0, -1)]
        series.append(replace(base, points=ends))
    return series


def _describe_panels(panels: Sequence[Panel]) -> str:
    """What panels show: `Throughput, test accuracy and tensor memory`."""
    labels = [panel.y.label.partition(" (")[0].removesuffix(" of a rank") for panel in panels]
    *names, last = dict.fromkeys(labels)
    if names:
        last = f"{', '.join(names)} and {last}"
    return f"{last[:1].upper()}{last[1:]}"


def search_chart(table: Table) -> Chart | None:
    """The metric of a search: by trial, in the order of their start, and against each field that was searched.

    None unless a search has two trials with a value of its metric.
    """
    if table.best_by is None:
        return None
    name, minimizes = table.best_by
    rows = sorted(table.rows, key=lambda row: min(record.order for record in row.records))
    numbers = {row.trial_id: number for number, row in enumerate(rows, start=1)}
    known = [row for row in rows if row.value_of(name) is not None]
    if len(known) < 2:
        return None
    plotted = plot.plotted_metric(name, log=plot.is_wide([row.estimates[name].centre for row in known]))

    trials = _searched(rows, plotted, lambda row: numbers[row.trial_id])
    # A value of an early epoch, of a trial that was stopped, is not the best.
    finished = {numbers[row.trial_id]: row.estimates[name].centre for row in known if not row.is_stopped}
    if len(finished) > 1:
        best = accumulate(finished.values(), min if minimizes else max)
        trials.append(plot.dashed_line("best so far", zip(finished, best, strict=True)))
    panels = [Panel(x=PlotAxis("trial (in the order of their start)"), y=plotted.y, series=trials)]
    fields, notes = plot.limit_items(plot.differing_fields(table, known), "fields", _MOST_FIELDS)
    panels += [_against(field, known, plotted) for field in fields]
    title = f"{plotted.y.label.partition(' (')[0]} of {len(known)} configurations"
    return Chart(name="search", title=f"{title[:1].upper()}{title[1:]}", panels=panels, notes=notes)


def _against(field: str, rows: Sequence[Trial], plotted: plot.Plotted) -> Panel:
    """The metric against a field; trials without a value of the field are left out."""
    known = [row for row in rows if row.factors[field] is not None]
    known.sort(key=lambda row: row.position([field]))
    x = plot.field_axis(field, known)
    return Panel(x=x, y=plotted.y, series=_searched(known, plotted, partial(plot.value_on_axis, field=field, x=x)))


def _searched(rows: Sequence[Trial], plotted: plot.Plotted, place: plot.PlaceOf) -> list[PlotSeries]:
    """The trials that were trained to the end, those that were stopped, and crosses of those without a value."""
    series: list[PlotSeries] = []
    for name, is_stopped in ((_TO_THE_END, False), ("stopped early", True)):
        line = plot.Line(name, [row for row in rows if row.is_stopped == is_stopped], place)
        series += plotted.series(line, describe=lambda row: describe_configuration(row.factors), muted=is_stopped)
    return series + plot.lost_crosses(plot.Line(_TO_THE_END, rows, place))


def metric_of_form(trial: Trial, metric: str) -> str:
    """The metric that has the value of a form of the model: without quantization, fp32 is what was tested."""
    is_tested = metric == "fp32_test_accuracy" and trial.records[0].config[QUANTIZATION] == "off"
    return "test_accuracy" if is_tested else metric


def _plotted_form(metric: str, y: PlotAxis) -> plot.Plotted:
    return plot.Plotted(y, lambda row: row.by_block(metric_of_form(row, metric)), metric)


def quantization_chart(table: Table) -> Chart | None:
    """What int8 does: accuracy, size of the checkpoint and latency in fp32 and in int8, and the speed of training.

    None unless the sweep asks about quantization, and two kinds of it were measured.
    """
    rows = plot.trained_together(table.rows)
    measured = plot.measured(rows)
    if table.axis != QUANTIZATION or count_values(measured, QUANTIZATION) < 2:
        return None
    x, lines = plot.lines_along(table, rows, QUANTIZATION)
    lines, notes = plot.limit_items(lines, "lines", _MOST_LINES)
    panels: list[Panel] = []
    for suffix, y in _QUANTIZED.items():
        series: list[PlotSeries] = []
        for line in lines:
            for form in ("fp32", "int8"):
                title = f"{form}, {line.title}".removesuffix(", ")
                series += _plotted_form(f"{form}_{suffix}", y).series(replace(line, title=title))
        if series:
            panels.append(Panel(x=x, y=y, series=series))
    training = [replace(line, title=line.title or "training") for line in lines]
    for plotted in plot.plotted_measures(table, measured):
        if not plotted.metric:
            y = replace(plotted.y, label=f"training {plotted.y.label}")
            panels += plot.line_panels([replace(plotted, y=y)], x, training)
    title = "Accuracy, size and latency in fp32 and in int8, and speed of training"
    about = "fp32 and int8 values come from the same training; without quantization there are only fp32 values."
    return Chart(name=QUANTIZATION, title=title, panels=panels, notes=[about, *notes])
