"""The answer on one field that a sweep varies: a headline, and what it does to each measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dmls_ray.analysis.metrics import label_of
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.summary.answer import Answer, Finding, cut
from dmls_ray.analysis.summary.axis import RANKS, Axis
from dmls_ray.analysis.summary.effects import effects_of
from dmls_ray.analysis.summary.effort import describe_effort
from dmls_ray.analysis.summary.headline import headline_of
from dmls_ray.analysis.summary.losers import losers_of
from dmls_ray.analysis.summary.measures import Measure
from dmls_ray.analysis.summary.memory import memory_along
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, join_names
from dmls_ray.analysis.summary.trend import trends_of
from dmls_ray.analysis.table.axis_groups import BATCHES, count_values
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.analysis.why.ranks import account_of_ranks
from dmls_ray.records.training_metrics import LEARNED

_WHY = "why"
"""Topic of the line on where the time of a step goes."""
_TUNED = "lr"
"""The field that each choice has its best value of."""


def answer_along(table: Table, name: str, more: Sequence[Finding] = ()) -> Answer:
    """What an axis does to speed, accuracy, memory and whatever else is measured, and what the other axes do.

    Args:
        table: the sweep's table.
        name: the field that the sweep asks about.
        more: findings of a workload, which follow those on the measures of the axis.
    """
    rows = [row for row in table.rows if row.counted and row.estimates]
    measures = table.presentation.measures(rows)
    if not measures:
        if any(row.counted for row in table.rows):
            return Answer(
                "These runs were searched, not measured, and their times say nothing: run them with --mode bench."
            )
        of_axis = f", so nothing can be said of {name}" if name in table.varied else ""
        return Answer(f"No run ended ok{of_axis}.")
    name, alone = axis_that_varies(table, rows, name)
    if not name:
        return Answer(alone or f"Only one trial was measured, so nothing can be compared: {_level(rows[0], measures)}.")
    axis = Axis.of(table, name, rows)
    if not axis.groups:
        return Answer(f"No two trials differ in {name} alone, so nothing can be said of it.")

    first, *rest = (_finding(axis, measure) for measure in measures)
    findings = [first, *_account(axis), *rest]
    leading = len(findings) - len(rest[1:])
    memory = memory_along(axis)
    judged = next((measure for measure in measures if measure.is_result), None)
    others = [
        finding for other in _others(table, rows, name) for finding in _of_other(_up_to_best(other, judged), measures)
    ]
    whys = [finding for finding in [*findings, *others] if finding.topic == _WHY]
    others = [finding for finding in others if finding not in whys[1:]]  # one account is enough
    last = _lost(table)
    return Answer(
        " ".join(filter(None, [alone, headline_of(axis, measures, table.presentation.verb, losers_of(table, rows))])),
        cut([*_best(table, rows, judged), *findings[:leading], *more, *others, *memory, *findings[leading:]], last),
    )


def _best(table: Table, rows: Sequence[Row], judged: Measure | None) -> list[Finding]:
    """The trial with the best result, where a sweep asks about combinations, or each choice has its learning rate."""
    axes = [name for name in table.varied if name not in BATCHES and count_values(rows, name) > 1]
    known = [row for row in rows if judged is not None and row.by_block(judged.name)]
    is_one_field = table.is_asked and _TUNED not in axes
    if is_one_field or judged is None or len(axes) < 2 or len(known) < 2:
        return []
    best, *others = sorted(known, key=judged.goodness, reverse=True)
    compared = [more for row in others if (more := judged.against(row, best)) is not None]
    text = f"{best.text(judged.name)} {judged.words} with {describe_configuration(best.factors)}"
    if all(more.low is None for more in compared):
        return [Finding("best", f"{text} (n={len(best.counted)})")]
    open_ = sum(more.low is None or not judged.sign(more) for more in compared)
    others_of = f"{open_} of {count_noun(len(others), 'other')}"
    rest = f"not distinguished from {others_of}" if open_ else "better than each other one beyond chance"
    return [Finding("best", f"{text}; {rest}")]


def _up_to_best(axis: Axis, judged: Measure | None) -> Axis:
    """Of a field of numbers, the values up to the one with the best result: the last one may be too far.

    A batch or a number of ranks is not chosen for its result, and has all its values.
    """
    if judged is None or not axis.is_ordered or axis.name in BATCHES or axis.name in RANKS:
        return axis
    results: dict[Any, list[float]] = {}
    for row in (row for group in axis.groups for row in group if row.by_block(judged.name)):
        results.setdefault(row.factors[axis.name], []).append(judged.goodness(row))
    complete = [value for value, found in results.items() if len(found) == len(axis.groups)]
    best = max(complete, key=lambda value: sum(results[value]), default=None)
    groups = [[row for row in group if best is None or row.factors[axis.name] <= best] for group in axis.groups]
    return replace(axis, groups=groups) if all(len(group) > 1 for group in groups) else axis


def axis_that_varies(table: Table, rows: Sequence[Row], name: str) -> tuple[str, str]:
    """The field that was asked about; if only one of its values was measured, another that varies, and a sentence."""
    if name == "batch_per_rank" and table.fixed_batch_field == "global_batch":
        name = "global_batch"
    if count_values(rows, name) > 1:
        return name, ""
    alone = _only_one(table, rows[0], name) if name in table.varied else ""
    # The field that does vary is the question then: world_size at one global_batch, say. One that follows from another,
    # as world_size does from ranks_per_machine, distinguishes no trials alone.
    others = [other for other in table.varied if count_values(rows, other) > 1]
    return next((other for other in others if Axis.of(table, other, rows).groups), next(iter(others), "")), alone


def _only_one(table: Table, row: Row, name: str) -> str:
    """That only one of several values could be measured."""
    value = row.factors[name]
    others = [row for row in table.rows if row.factors[name] != value]
    return f"Only {name} {value} could be measured." if others else ""


def _level(row: Row, measures: Sequence[Measure]) -> str:
    rate = row.throughput if row.estimate(row.throughput) else "total_s"
    names = [rate if measure.name == "speed" else measure.name for measure in measures]
    return ", ".join(f"{label_of(name)} {row.text(name)}" for name in names if row.text(name))


def _finding(axis: Axis, measure: Measure) -> Finding:
    """What an axis does to a measure; for what was learned, with what else differs that it follows from."""
    text = trends_of(axis, measure) if axis.is_ordered else effects_of(axis, measure)
    if measure.name in LEARNED:
        rows = [row for row in axis.groups[0] if row.by_block(measure.name)]
        effort = describe_effort(rows, axis.name, ordered=axis.is_ordered, only_differing=True)
        text = f"{text}; along with {effort}{axis.place(axis.groups[0])}" if effort else text
    return Finding(measure.topic, text)


def _others(table: Table, rows: Sequence[Row], name: str) -> Iterator[Axis]:
    """The other fields that vary, as axes."""
    for other in table.varied:
        is_derived = other in BATCHES and (name in BATCHES or other != table.fixed_batch_field)
        if other != name and not is_derived and count_values(rows, other) > 1:
            axis = Axis.of(table, other, rows)
            if axis.groups:
                yield axis


def _of_other(axis: Axis, measures: Sequence[Measure]) -> list[Finding]:
    """What another axis does to the first measure, and to others where it is beyond chance; of ranks, why."""
    first, *rest = measures
    texts = [
        f"{text}{_batch_of(axis) if measure.name in LEARNED else ''}"
        for measure in rest
        if (text := effects_of(axis, measure, only_decided=True))
    ]
    text = "; ".join(filter(None, [effects_of(axis, first), *texts]))
    if not text:
        return []
    values = {axis.subject(row) for group in axis.groups for row in (group[-1:] if axis.is_ordered else group[1:])}
    return [Finding(next(iter(values)) if len(values) == 1 else axis.name, text), *_account(axis)]


def _batch_of(axis: Axis) -> str:
    """How many times the samples a step has with the most ranks: what was learned follows from that."""
    if axis.name not in RANKS:
        return ""
    first, last = (factors_of(axis.groups[0][place].records[0]).get("global_batch") for place in (0, -1))
    return f" (at {last / first:.3g}x the global_batch)" if first and last and last != first else ""


def _account(axis: Axis) -> list[Finding]:
    """Where the difference between the steps of many ranks and of few goes, in the first group; empty if unknown."""
    first = axis.groups[0]
    account = account_of_ranks(first[-1], first[0]) if axis.name in RANKS else ""
    return [Finding(_WHY, f"{axis.subject(first[-1])}{axis.place(first)}: {account}")] if account else []


def _lost(table: Table) -> list[Finding]:
    """What could not be measured, as it ended."""
    names = [f"{describe_configuration(row.factors)} ({row.outcome})" for row in table.rows if not row.counted]
    return [Finding("not measured", join_names(names, separator=", "))] if names else []
