"""Sentences on any metrics: what an axis does to them, and what a search found."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.memory import MEMORY, memory_metric
from dmls_ray.analysis.stats.formatting import GENERIC, format_interval, format_value, with_sign
from dmls_ray.analysis.stats.intervals import verdict_of
from dmls_ray.analysis.summary.effort import effort_phrase
from dmls_ray.analysis.summary.phrases import (
    context_phrase,
    count_noun,
    describe_configuration,
    join_names,
    paired_note,
)
from dmls_ray.analysis.table.axis_groups import count_values, groups_along_axis
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import LEARNED


def summarize_search(table: Table, metric: str, *, minimizes: bool) -> str:
    """Which configuration reached the best value of a metric, among how many, and how the next one did.

    Args:
        table: the search's table.
        metric: what was searched for.
        minimizes: whether less of it is better.
    """
    reported = [row for row in table.rows if row.value_of(metric) is not None]
    # A value of an early epoch is not compared with that of a whole training.
    finished = [row for row in reported if not row.is_stopped]
    is_cut = 0 < len(finished) < len(reported)
    reported = finished or reported
    best_first = sorted(reported, key=lambda row: _level_of(row, metric), reverse=not minimizes)
    if not best_first:
        return f"No run that ended ok reported its {metric}, so nothing can be said of it."
    best_level = _level_of(best_first[0], metric)
    equal = [row for row in best_first if _level_of(row, metric) == best_level]
    names = join_names([describe_configuration(row.factors) for row in equal], separator=", and with ")
    of_what = f"{count_noun(len(best_first), 'configuration')}{' that trained to the end' if is_cut else ''}"
    best = f"The {'least' if minimizes else 'highest'} {metric} of {of_what} is"
    parts = [f"{best} {GENERIC(best_level)}, with {names}"]
    for row in best_first[len(equal) :][:1]:
        parts.append(f"the next is {GENERIC(_level_of(row, metric))}, with {describe_configuration(row.factors)}")
    stopped = sum(record.stopped_epoch is not None and record.outcome is Outcome.OK
                  for row in table.rows for record in row.records)  # fmt: skip
    if stopped:
        parts.append(f"{count_noun(stopped, 'run')} {'was' if stopped == 1 else 'were'} stopped early")
    return (
        f"{'; '.join(parts)}. The best of many looks better than it is: run it again with several seeds (--mode bench) "
        "before you trust it."
    )


def summarize_metrics(table: Table, axis: str, measures: Sequence[str] = ()) -> str:
    """What the axis does to the time of a run and to its other metrics.

    Args:
        table: the sweep's table.
        axis: the field that the sweep asks about.
        measures: the metrics of the sentence; all by default.
    """
    rows = [row for row in table.rows if row.estimates or row.custom_metrics]
    if not rows:
        return f"No run ended ok, so nothing can be said of {axis}."
    if count_values(rows, axis) < 2:
        axis = next((name for name in table.varied if count_values(rows, name) > 1), axis)
    groups = groups_along_axis(rows, axis, table.fixed_batch_field) if count_values(rows, axis) > 1 else []
    if not groups:
        return f"No two trials differ in {axis} alone, so nothing can be compared."
    vocabulary = [name for name in ("images_per_s", *LEARNED) if any(name in row.estimates for row in rows)]
    memory = memory_metric(rows)
    parts = measures or ["total_s", *([memory] if memory else []), *vocabulary, *table.custom_metric_names]
    sentence = "; ".join(_along(group, axis, parts) for group in groups)
    counts = sorted({len(row.counted) for row in rows})
    return f"{sentence[:1].upper()}{sentence[1:]} (n={' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))})."


def _along(group: Sequence[Row], axis: str, measures: Sequence[str]) -> str:
    """From the first value of the axis to its last; for choices, from what has least of a measure to what has most."""
    values = [row.factors[axis] for row in group]
    choices = any(isinstance(value, bool) or not isinstance(value, int | float) for value in values)
    parts = []
    for name in measures:
        having = [row for row in group if row.by_block(name)]
        if len(having) > 1:
            ends = [pick(having, key=lambda row: _level_of(row, name) if choices else row.factors[axis])
                    for pick in (min, max)]  # fmt: skip
            parts.append(_change(*ends, axis=axis, name=name, choices=choices))
    learned = any(row.by_block(name) for name in {*measures} & {*LEARNED} for row in group)
    if choices:
        return f"{context_phrase(group, axis)}{'; '.join(parts)}{effort_phrase(group, axis) if learned else ''}"
    ordered = sorted(group, key=lambda row: row.factors[axis])
    span = f"from {axis} {ordered[0].factors[axis]} to {ordered[-1].factors[axis]}"
    effort = effort_phrase(ordered, axis, ordered=True) if learned else ""
    return f"{context_phrase(group, axis)}{span} {', '.join(parts)}{effort}"


def _level_of(row: Row, name: str) -> float:
    level = row.value_of(name)
    assert level is not None, name
    return level


def _change(first: Row, last: Row, *, axis: str, name: str, choices: bool) -> str:
    """How a measure goes from one trial to another.

    Args:
        first: where it is least, of choices.
        last: where it is most.
        axis: the field in which they differ.
        name: the measure.
        choices: whether the trials were picked by their values of the measure.
    """
    words = "seconds a run" if name == "total_s" else f"{MEMORY[name]} (MiB)" if name in MEMORY else name
    low, high = (format_value(row.estimate(name), GENERIC) for row in (first, last))
    if first is last:
        return f"{words} is {low} with every {axis}"
    more = last.difference_from(first, name)
    by = "not compared: no block has both in one environment"
    if more is not None:
        by = f"{format_interval(more, with_sign(GENERIC), null=0)}{paired_note(more.n, first, last)}"
        by += ", indistinguishable" if verdict_of(more, 0, "higher", "lower") == "indistinguishable" else ""
    if not choices:
        return f"{words} went from {low} to {high} ({by})"
    return f"{words} from {low} with {axis} {first.factors[axis]} to {high} with {last.factors[axis]} ({by})"
