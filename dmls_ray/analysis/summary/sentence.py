"""One sentence that answers a sweep's question, and says no more than the data allows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from dmls_ray.analysis.metrics import format_of, label_of
from dmls_ray.analysis.stats.formatting import (
    ACCURACY,
    INTEGER,
    RATE,
    RATIO,
    SECONDS,
    format_interval,
    format_value,
    with_sign,
)
from dmls_ray.analysis.stats.intervals import Comparison, Estimate, bonferroni_level, compare, difference
from dmls_ray.analysis.summary.phrases import without_derived_batch
from dmls_ray.analysis.table.grouping import context_phrase, count_values, groups_along_axis, paired_note
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row

_MOST_LOST = 4
"""Trials that are named of those that could not be measured."""

_WORDS = {"faster": "faster", "slower": "slower", "indistinguishable": "indistinguishable in speed"}


def summarize_axis(table: Table, axis: str) -> str:
    """What an axis does to the metrics of the table's workload."""
    return table.presentation.summary(table, axis)


def summarize_training(table: Table, axis: str) -> str:
    """What the axis does to speed, memory and accuracy.

    Where it is a number, from its first value to its last; else which value is best.

    Args:
        table: the sweep's table.
        axis: the field that the sweep asks about.
    """
    rows = [row for row in table.rows if row.rates()]
    if not rows:
        if any(row.counted for row in table.rows):
            return "These runs were searched, not measured, and their times say nothing: run them with --mode bench."
        return f"No run ended ok, so nothing can be said of {axis}."
    if axis == "batch_per_rank" and table.fixed_batch_field == "global_batch":
        axis = "global_batch"
    asked, alone = axis, ""
    if count_values(rows, axis) < 2:
        # The one that does vary is the question then: world_size at one global_batch, say.
        if axis in table.varied:
            alone = _only_one(table, rows[0], asked)
        axis = next((name for name in table.varied if count_values(rows, name) > 1), axis)
    if count_values(rows, axis) < 2:
        return alone or f"Only one value of {axis} was measured, so nothing can be compared: {_level(rows[0])}."
    groups = groups_along_axis(rows, axis, table.fixed_batch_field)
    if not groups:
        return f"No two trials differ in {axis} alone, so nothing can be said of it."
    sentence = "; ".join(_along(group, axis) for group in groups)
    sentence = f"{sentence[:1].upper()}{sentence[1:]} ({_repeats(rows)}){_lost(table, rows)}."
    return f"{alone} {sentence}" if asked != axis and alone else sentence


def summarize_variants(table: Table, changed: Collection[str]) -> str:
    """What each change, made alone, does to test accuracy and to its gap to training, against the trial without any.

    Args:
        table: the sweep's table.
        changed: the fields that variants change.
    """
    groups: dict[str, list[Row]] = {}
    for row in table.rows:
        if row.by_block("test_accuracy"):
            same = {name: value for name, value in row.factors.items() if name not in changed}
            groups.setdefault(repr(same), []).append(row)
    level = bonferroni_level(sum(len(rows) - 1 for rows in groups.values()))
    texts = [sentence for rows in groups.values() if (sentence := _against_base(rows, changed, level))]
    if not texts:
        return "There is no trial to compare with, so nothing can be said of what was changed."
    together = ", intervals that hold together" if sum(len(rows) - 1 for rows in groups.values()) > 1 else ""
    return f"{'; '.join(texts)} ({_repeats([row for rows in groups.values() for row in rows])}{together})."


def _against_base(rows: Sequence[Row], changed: Collection[str], level: float) -> str:
    base = next((row for row in rows if not _changes(row, changed)), None)
    if base is None or len(rows) < 2:
        return ""
    texts: dict[str, list[str]] = {"higher with": [], "lower with": [], "indistinguishable with": []}
    for row in sorted(rows, key=lambda row: -row.estimates["test_accuracy"].median):
        more = difference(row.by_block("test_accuracy"), base.by_block("test_accuracy"), level=level)
        if row is base or more is None:
            continue
        verdict = "indistinguishable with"
        if more.low is not None and more.high is not None:
            verdict = "higher with" if more.low > 0 else "lower with" if more.high < 0 else verdict
        by = f"{format_interval(more, with_sign(ACCURACY), null=0)}{paired_note(more.n, row, base)}"
        texts[verdict].append(f"{_changes(row, changed)} ({by})")
    if not any(texts.values()):
        return ""
    parts = ", ".join(f"{verdict} {', '.join(names)}" for verdict, names in texts.items() if names)
    gaps = [row for row in rows if "accuracy_gap" in row.estimates]
    least = min(gaps, key=lambda row: abs(row.estimates["accuracy_gap"].median), default=base)
    gap = ""
    if "accuracy_gap" in base.estimates and least is not base:
        gap = (
            f"; the gap to training accuracy, {format_value(base.estimates['accuracy_gap'], ACCURACY)}, "
            "is closest to zero with "
            f"{_changes(least, changed)}: {format_value(least.estimates['accuracy_gap'], ACCURACY)}"
        )
    shared = {name: value for name, value in base.factors.items() if name not in changed}
    at = f"At {', '.join(f'{name} {value}' for name, value in shared.items())}, against" if shared else "Against"
    return (
        f"{at} a test accuracy of {format_interval(base.estimates['test_accuracy'], ACCURACY)} without, it is "
        f"{parts}{gap}"
    )


def _changes(row: Row, changed: Collection[str]) -> str:
    """What a row changes: `dropout=0.3`."""
    specs = row.workload.specs()
    made = {name: value for name, value in row.factors.items() if name in changed and value != specs[name].default}
    return " ".join(f"{name}={value}" for name, value in made.items())


def _only_one(table: Table, row: Row, axis: str) -> str:
    """That, and why, only one of several values could be measured."""
    value = row.factors.get(axis)
    others = [other for other in table.rows if other.factors.get(axis) != value]
    if not others:
        return ""
    names = ", ".join(dict.fromkeys(str(other.factors.get(axis)) for other in others))
    if any(other.counted for other in others):
        return f"Of {axis} the times are known of {value} alone, so its speed is not compared with {names}."
    why = next((f" ({other.reason.rstrip('.')})" for other in others if other.reason), "")
    return f"Of {axis} only {value} could be measured, so it is not compared with {names}{why}."


def _along(group: Sequence[Row], axis: str) -> str:
    """For an axis of numbers: from its first value to its last, and what is best in between."""
    if any(isinstance(row.factors[axis], bool | str | type(None)) for row in group):
        return _among(group, axis)
    ordered = sorted(group, key=lambda row: row.factors[axis])
    first, last = ordered[0], ordered[-1]
    return (
        f"{context_phrase(group, axis)}from {axis} {first.factors[axis]} to {last.factors[axis]} {_pace(first, last)}"
        f"{_between(ordered, axis)}{_memory(first, last)}{_learned(first, last)}"
        f"{_between(ordered, axis, 'test_accuracy')}"
    )


def _between(ordered: Sequence[Row], axis: str, measure: str = "") -> str:
    """The best of all values of an axis, where it is neither the first nor the last, and better than both.

    Args:
        ordered: the trials, from the axis's first value to its last.
        axis: the field.
        measure: what is to be high; without it, the speed.
    """
    values = [(row.by_block(measure) if measure else row.rates()).values() for row in ordered]
    levels = {index: median(each) for index, each in enumerate(values) if each}
    best = max(levels, key=lambda index: levels[index], default=0)
    if best in (0, len(ordered) - 1):
        return ""
    row, ends = ordered[best], (ordered[0], ordered[-1])
    # It is picked for being the best, out of so many pairs.
    level = bonferroni_level(len(ordered) * (len(ordered) - 1) // 2)
    if measure:
        more = [difference(row.by_block(measure), end.by_block(measure), level=level) for end in ends]
        if any(item is None or item.low is None or item.low <= 0 for item in more):
            return ""
        return (
            f", highest at {axis} {row.factors[axis]} ({format_interval(row.estimates[measure], format_of(measure))})"
        )
    faster = [row.speed_against(end, level=level) for end in ends]
    if any(item is None or item.verdict != "faster" for item in faster):
        return ""
    return f", fastest at {axis} {row.factors[axis]} ({_rate(row)})"


def _pace(first: Row, last: Row) -> str:
    """How fast training goes in one trial and in another; where no rate is known, by how long a run takes."""
    faster = last.speed_against(first)
    if "images_per_s" in first.estimates and "images_per_s" in last.estimates:
        went = f"training went from {format_value(first.estimates['images_per_s'], RATE)} to {_rate(last)}"
        return f"{went}, {_speed(faster, first, last)}"
    if "total_s" not in first.estimates or "total_s" not in last.estimates:
        return f"training went on at {_rate(first)} and at {_rate(last)}, which do not compare"
    times = [format_value(row.estimates["total_s"], SECONDS) for row in (first, last)]
    took = f"a run went from {times[0]} to {times[1]} s"
    longer = first.speed_against(last)
    if faster is None or longer is None or faster.ratio.centre >= 1:
        return f"{took}, {_speed(faster, first, last)}"
    verdict = "" if faster.verdict == "unknown" else f"{_WORDS[faster.verdict]}: "
    return (
        f"{took}, {verdict}{format_interval(longer.ratio, RATIO, null=1)} times as long{_blocks(longer, first, last)}"
    )


def _among(group: Sequence[Row], axis: str) -> str:
    """For an axis of choices."""
    slowest, *_, fastest = sorted(group, key=lambda row: median(row.rates().values()))
    # They are picked for being the fastest and the slowest, out of so many pairs.
    level = bonferroni_level(len(group) * (len(group) - 1) // 2)
    speed = (
        f"in training, {fastest.factors[axis]} against {slowest.factors[axis]} is "
        f"{_speed(fastest.speed_against(slowest, level=level), fastest, slowest)}"
    )
    quantized = [text for row in group if (text := _quantized(row))]
    if quantized:
        return f"{context_phrase(group, axis)}{'; '.join(quantized)}; {speed}"
    return f"{context_phrase(group, axis)}{_best(group, axis, level)}; {speed}"


def _best(group: Sequence[Row], axis: str, level: float) -> str:
    """Which choice reached the highest test accuracy, if the repeats distinguish it."""
    tested = [row for row in group if "test_accuracy" in row.estimates]
    if not tested:
        return f"no test accuracy is known of any {axis}"
    best, *others = sorted(tested, key=lambda row: -row.estimates["test_accuracy"].median)
    reached = f"{axis} {best.factors[axis]} reached {format_interval(best.estimates['test_accuracy'], ACCURACY)}"
    if not others:
        return f"{reached} of test accuracy"
    if any(row.estimates["test_accuracy"].low is None for row in tested):
        return f"{reached} of test accuracy, the highest that was seen, of too few repeats to rule out chance"
    ties = [row for row in others if not _is_lower(row, best, level)]
    if not ties:
        return f"{reached}, the highest test accuracy"
    names = ", ".join(str(row.factors[axis]) for row in ties)
    if len(ties) == len(others):
        return f"{reached} of test accuracy, indistinguishable from {names}"
    return f"{reached}, the highest test accuracy but indistinguishable from {names}"


def _is_lower(row: Row, best: Row, level: float) -> bool:
    """Whether a row's test accuracy is below the best one's in the blocks they share, as far as repeats show."""
    less = difference(row.by_block("test_accuracy"), best.by_block("test_accuracy"), level=level)
    return less is not None and less.high is not None and less.high < 0


def _quantized(row: Row) -> str:
    """What int8 does to accuracy, size and latency of one kind of quantization."""
    if "int8_test_accuracy" not in row.estimates:
        return ""
    changed = difference(row.by_block("int8_test_accuracy"), row.by_block("fp32_test_accuracy"))
    parts = [
        f"{row.factors['quantization']}: int8 test accuracy "
        f"{format_interval(row.estimates['int8_test_accuracy'], ACCURACY)}, "
        f"{format_interval(changed, with_sign(ACCURACY), null=0)} against its fp32 form"
    ]
    sizes = [row.estimates.get(f"{form}_checkpoint_bytes") for form in ("int8", "fp32")]
    if all(sizes):
        parts.append("checkpoint {} against {} bytes".format(*(format_value(size, INTEGER) for size in sizes)))
    times = [row.by_block(f"{form}_compiled_ms_p50") for form in ("fp32", "int8")]
    comparison = compare(*times)
    if comparison is not None:
        batch = row.records[0].config["inference_batch"]
        parts.append(f"inference of {batch} images {_speed(comparison, row, row)} as in fp32, both compiled")
    return ", ".join(parts)


def _speed(comparison: Comparison | None, one: Row, other: Row) -> str:
    if comparison is None:
        return "not compared: no block has both on one machine and device"
    times = f"{format_interval(comparison.ratio, RATIO, null=1)} times as fast{_blocks(comparison, one, other)}"
    return times if comparison.verdict == "unknown" else f"{_WORDS[comparison.verdict]}: {times}"


def _blocks(comparison: Comparison, one: Row, other: Row) -> str:
    """How many blocks a comparison is of, where it is not of all."""
    pairs = comparison.ratio.n if isinstance(comparison.ratio, Estimate) else 0
    return paired_note(pairs, one, other, " on one machine and device")


def _memory(first: Row, last: Row) -> str:
    one, other = first.estimates.get("peak_mem_mib"), last.estimates.get("peak_mem_mib")
    return (
        ""
        if one is None or other is None
        else f", peak memory from {format_value(one, INTEGER)} to {format_value(other, INTEGER)} MiB"
    )


def _learned(first: Row, last: Row) -> str:
    """What becomes of test accuracy, paired by block."""
    one, other = first.estimates.get("test_accuracy"), last.estimates.get("test_accuracy")
    if one is None or other is None:
        return ""
    went = f", test accuracy from {format_value(one, ACCURACY)} to {format_value(other, ACCURACY)}"
    more = difference(last.by_block("test_accuracy"), first.by_block("test_accuracy"))
    if more is None or more.low is None or more.high is None:
        return went
    verdict = "higher" if more.low > 0 else "lower" if more.high < 0 else "indistinguishable"
    return f"{went}, {verdict}: {format_interval(more, with_sign(ACCURACY), null=0)}{paired_note(more.n, first, last)}"


def _lost(table: Table, rows: Sequence[Row]) -> str:
    """What could not be measured, as it ended."""
    lost = [row for row in table.rows if row not in rows and not row.counted]
    if not lost:
        return ""
    texts = [f"{_named(row)} ({row.outcome})" for row in lost[:_MOST_LOST]]
    more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    return f"; not measured: {', '.join(texts)}{more}"


def _named(row: Row) -> str:
    return " ".join(f"{name} {value}" for name, value in without_derived_batch(row.factors).items())


def _level(row: Row) -> str:
    tested = row.estimates.get("test_accuracy")
    return _rate(row) + (f", test accuracy {format_value(tested, ACCURACY)}" if tested else "")


def _rate(row: Row) -> str:
    """How fast, with its unit."""
    name = "images_per_s" if "images_per_s" in row.estimates else "total_s"
    return f"{format_value(row.estimates[name], format_of(name))} {label_of(name)}"


def _repeats(rows: Sequence[Row]) -> str:
    counts = sorted({len(row.rates()) for row in rows})
    return f"n={counts[0]}" if len(counts) == 1 else f"n={counts[0]} to {counts[-1]}"
