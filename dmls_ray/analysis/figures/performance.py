"""What training takes: throughput and efficiency against ranks, time, memory and communication of an optimizer step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from dmls_ray.analysis.figures import series as plot
from dmls_ray.analysis.figures.chart import MAX_CATEGORIES, Chart, Panel, PlotAxis, PlotSeries, Point
from dmls_ray.analysis.metrics import MEMORY_KINDS
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.stats.scaling_laws import Fit, Points, fits
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.common_metrics import memory_metric
from dmls_ray.analysis.trials.steps import PARTS, parts_by_block, step_parts
from dmls_ray.analysis.trials.trial import Trial

_CURVE_POINTS = 25
_MOST_PANELS = 4
"""Lines of trials that have a panel of bars."""
_WIDE = 4
"""Ratio of limit to highest value above which the limit is not drawn, so that the values remain readable."""

Amounts = Mapping[str, Mapping[str, float | None]]
"""trial_id -> name of a part -> its value."""


def scaling_chart(table: Table) -> Chart | None:
    """The figure; None if no two trials with a rate differ only in world_size.

    Without a measured world size 1 there is no ideal, no efficiency and no fit.
    """
    rates = plot.plotted_rates(table.rows)
    x, lines, notes = plot.metric_lines(table, rates, "world_size")
    throughput: list[PlotSeries] = []
    efficiency: list[PlotSeries] = []
    blocks: set[int] = set()
    strong = table.fixed_batch_field == "global_batch"
    for line in lines:
        throughput += rates.series(line, connected=True) + plot.lost_crosses(line)
        measured = [row for row in line.rows if rates.values(row)]
        if not measured or measured[0].world_size != 1:
            continue
        speed_ups = _speed_ups(measured, rates)
        # Without an interval, which needs three blocks, no law is drawn.
        drawn = [law for law in fits(speed_ups, strong=strong) if law.curve(1).low is not None]
        rate = estimate(list(rates.values(measured[0]).values()), "rate").centre
        most = measured[-1].world_size
        throughput.append(plot.dashed_line("ideal", [(1, rate), (most, rate * most)], line.name))
        throughput += _fitted(line, drawn, most, rate)
        blocks |= {len(law.by_block) for law in drawn}
        points = [Point(1, 1.0, runs=plot.run_ids(measured[0].counted))]
        points += [_efficiency_of(row, row.speed_up) for row in measured if row.speed_up]
        efficiency.append(PlotSeries(line.name, points, connected=True))
        efficiency += _fitted(line, drawn, most)
    if not any(series.kind == "points" for series in throughput):
        return None
    panels = [Panel(x=x, y=PlotAxis(rates.y.label, log=x.log, from_zero=True), series=throughput)]
    if efficiency:
        last = max(point.x for series in efficiency for point in series.points)
        efficiency.append(plot.dashed_line("ideal", [(1, 1.0), (last, 1.0)]))
        panels.append(Panel(x=x, y=PlotAxis("efficiency (speed-up / ranks)", from_zero=True), series=efficiency))
    if blocks:
        notes.append(
            f"Bands around fitted curves are 95% intervals over {plot.span_of(blocks)} blocks, each with its fit."
        )
    title = f"Throughput and efficiency against ranks ({'strong' if strong else 'weak'} scaling)"
    return Chart(name="scaling", title=title, panels=panels, notes=notes)


def _efficiency_of(row: Trial, speed_up: Contrast) -> Point:
    """The efficiency of a trial, with the interval of the table's speed-up."""
    size, low, high = row.world_size, speed_up.low, speed_up.high
    if low is not None and high is not None:
        low, high = low / size, high / size
    return Point(size, speed_up.centre / size, low, high, plot.run_ids(row.counted), f"n={speed_up.n}")


def _fitted(line: plot.Line, laws: Sequence[Fit], most: int, rate: float | None = None) -> list[PlotSeries]:
    """Each law as a curve with its interval, from world size 1 to the largest one that was measured.

    Args:
        line: the trials.
        laws: laws fitted to the trials.
        most: the largest measured world size.
        rate: throughput of the baseline; None: the curves are of efficiency.
    """
    series = []
    for law in laws:
        points = []
        for step in range(_CURVE_POINTS):
            size = 1 + (most - 1) * step / (_CURVE_POINTS - 1)
            value = law.curve(size)
            factor = rate or 1 / size
            low, high = (value.low or 0.0) * factor, (value.high or 0.0) * factor
            points.append(Point(size, value.centre * factor, low, high))
        series.append(PlotSeries(law.name, points, "line", dashed=True, same_as=line.name))
    return series


def _speed_ups(rows: Sequence[Trial], plotted: plot.Plotted) -> Points:
    """world_size above 1 -> block -> speed-up over the baseline, the first of the trials, in that block.

    As in the table, only blocks in which both ran in the same environment count.
    """
    base = plotted.values(rows[0])
    speed_ups = {}
    for row in rows:
        common = row.common_blocks(rows[0]) & base.keys()
        rates = plotted.values(row)
        by_block = {block: rates[block] / base[block] for block in rates if block in common}
        if by_block and row.world_size > 1:
            speed_ups[row.world_size] = by_block
    return speed_ups


def time_chart(table: Table) -> Chart | None:
    """Time of an epoch and of an optimizer step; None if no two trials with times differ in the batch alone."""
    plotted = [
        plot.plotted_metric("epoch_s", "training time of an epoch (s)", log=True),
        plot.plotted_metric("step_ms_p50", "median optimizer step (ms)", log=True),
    ]
    return _along(table, "time", "Time against batch", [plot.batch_axis(table)], plotted)


def communication_chart(table: Table) -> Chart | None:
    """What communication adds to a step, and how much of it computation hides; None if no two trials have DDP's timers.

    The x axis is the first of world_size, the batch and the varied fields in which two trials differ alone.
    """
    exposed = PlotAxis("communication not overlapped (fraction of a step)", from_zero=True)
    hidden = PlotAxis("overlapped with compute (fraction of communication)", from_zero=True)
    plotted = [plot.Plotted(exposed, _exposed, quantity="share"), plot.Plotted(hidden, _hidden, quantity="share")]
    fields = ["world_size", plot.batch_axis(table), *table.varied]
    fields = [field for field in fields if field not in table.changed]
    return _along(table, "communication", "Communication of gradients", fields, plotted)


def _exposed(row: Trial) -> Mapping[int, float]:
    runs = parts_by_block(row)
    shared = _hidden(row).keys() & runs.keys()
    return {block: runs[block]["exposed_comm_ms"] / sum(runs[block].values()) for block in sorted(shared)}


def _hidden(row: Trial) -> Mapping[int, float]:
    timed = [record for record in row.timed if "overlap_ms" in record.metrics]
    return {record.repeat: record.metrics["overlap_ms"] / record.metrics["comm_ms"] for record in timed}


def _along(table: Table, name: str, title: str, fields: Sequence[str], plotted: Sequence[plot.Plotted]) -> Chart | None:
    """Quantities along the first of some fields in which two trials differ alone; None without such trials."""
    for field in fields:
        x, lines, notes = plot.metric_lines(table, plotted[0], field)
        panels = plot.line_panels(plotted, x, lines)
        if panels:
            return Chart(name=name, title=title, panels=panels, notes=notes)
    return None


def step_parts_chart(table: Table) -> Chart | None:
    """The parts of an optimizer step in each trial, as stacked bars; None if fewer than two trials have them."""
    amounts = {}
    for row in table.rows:
        known = step_parts(row)
        if known:
            amounts[row.trial_id] = {words: known[name] for name, words in PARTS.items()}
    panels, notes = _stacked_panels(table, amounts, "time of an optimizer step (ms)")
    if not panels:
        return None
    return Chart(name="step_parts", title="Where an optimizer step goes", panels=panels, notes=notes)


def memory_chart(table: Table) -> Chart | None:
    """The figure; None if no two runs have the kinds of their memory, and no two trials differ in the batch alone.

    Bars of the kinds of memory add up to the peak of the tensors.
    """
    amounts = {}
    for row in table.rows:
        kinds = {name.removesuffix("_mem_mib"): row.value_of(name) for name in MEMORY_KINDS}
        if any(kinds.values()):
            amounts[row.trial_id] = kinds
    panels, notes = _stacked_panels(table, amounts, "peak of the tensors (MiB)")
    panels += _against_batch(table, notes)
    return Chart(name="memory", title="Memory of a rank", panels=panels, notes=notes) if panels else None


def _against_batch(table: Table, notes: list[str]) -> list[Panel]:
    """What a GPU allocated if it is known, else the memory by which trials are compared."""
    metric = "device_mem_mib" if table.has("device_mem_mib") else memory_metric(table.rows)
    plotted = plot.plotted_metric(metric, from_zero=True)
    field = plot.batch_axis(table)
    x, lines, note = plot.metric_lines(table, plotted, field)
    notes += note
    # On a logarithmic axis a straight line would be a curve.
    panels = plot.line_panels([plotted], replace(x, log=False, from_zero=True, ticks=()), lines)
    return [replace(panel, series=[*panel.series, *_limit(lines, metric, field)]) for panel in panels]


def _limit(lines: Sequence[plot.Line], metric: str, field: str) -> list[PlotSeries]:
    """The memory of the GPU, if it is near the values."""
    rows = [row for line in lines for row in line.rows]
    sizes: list[float] = []
    for record in chain.from_iterable(row.records for row in rows):
        if record.device.startswith("cuda"):
            sizes += record.machine.get("gpu_memory_mib") or []
    highest = max(row.value_of(metric) or 0.0 for row in rows)
    if not sizes or min(sizes) > _WIDE * highest:
        return []
    batches = [row.factors[field] for row in rows]
    ends = [(batch, float(min(sizes))) for batch in (min(batches), max(batches))]
    return [plot.dashed_line("limit: memory of the GPU", ends)]


def _stacked_panels(table: Table, amounts: Amounts, label: str) -> tuple[list[Panel], list[str]]:
    """Bars of the parts of an amount on each other, and notes; no panel for fewer than two trials.

    Where trials differ in the batch, there is a panel for each line of them: its labels are short. Elsewhere each
    trial has the value of the field in which the trials differ, or its label if they differ in several.

    Args:
        table: table of the sweep.
        amounts: the parts of each trial that has them.
        label: what they add up to, with its unit.
    """
    rows = [row for row in table.rows if row.trial_id in amounts]
    if len(rows) < 2:
        return [], []
    x, lines = plot.lines_along(table, rows, plot.batch_axis(table))
    lines, notes = plot.limit_items(lines, "lines", _MOST_PANELS)
    if not lines:
        shown, notes = plot.limit_items(rows, "trials", MAX_CATEGORIES)
        names = plot.differing_fields(table, shown)
        x = PlotAxis("trial")
        place: plot.PlaceOf = partial(plot.trial_label, names=names, changed=table.changed)
        if len(names) == 1:
            x = plot.field_axis(names[0], shown)
            place = partial(plot.value_on_axis, field=names[0], x=x)
        lines = [plot.Line("", shown, place)]
    y = PlotAxis(label, from_zero=True)
    panels = []
    for line in lines:
        at = PlotAxis(x.label, categories=[plot.format_factor(line.place(row)) for row in line.rows])
        bars = _bars(line, at.categories, amounts)
        panels.append(Panel(x=at, y=y, series=bars, title=line.title, stacked=True))
    return panels, notes


def _bars(line: plot.Line, categories: Sequence[str], amounts: Amounts) -> list[PlotSeries]:
    """A series for each part that some trial of the sweep has, each value at the category of its trial."""
    bars = []
    for name in next(iter(amounts.values())):
        if not any(amount[name] for amount in amounts.values()):
            continue
        points = []
        for category, row in zip(categories, line.rows, strict=True):
            text = f"n={len(row.counted)}"
            points.append(Point(category, amounts[row.trial_id][name], runs=plot.run_ids(row.counted), text=text))
        bars.append(PlotSeries(name, points, "bar"))
    return bars
