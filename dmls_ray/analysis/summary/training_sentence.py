"""The sentence that answers a sweep's question for workloads that train, and says no more than the data allows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from dmls_ray.analysis.metrics import label_of, resolution_of
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.formatting import ACCURACY, RATIO, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import Estimate, estimate, is_above, verdict_of
from dmls_ray.analysis.summary.effort import effort_phrase
from dmls_ray.analysis.summary.memory import memory_among, memory_change
from dmls_ray.analysis.summary.phrases import context_phrase, count_repeats, paired_note, without_derived_batch
from dmls_ray.analysis.table.axis_groups import count_values, groups_along_axis
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row

_MOST_LOST = 4
"""Trials that are named of those that could not be measured."""


_SAME_ENVIRONMENT = " on one machine and device with the same versions"


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
        alone = _only_one(table, rows[0], axis) if axis in table.varied else ""
        # The field that does vary is the question then: world_size at one global_batch, say.
        axis = next((name for name in table.varied if count_values(rows, name) > 1), "")
        if not axis:
            return alone or f"Only one value of {asked} was measured, so nothing can be compared: {_level(rows[0])}."
    groups = groups_along_axis(rows, axis, table.fixed_batch_field)
    if not groups:
        return f"No two trials differ in {axis} alone, so nothing can be said of it."
    sentence = "; ".join(_along(group, axis) for group in groups)
    # Each of them is right 95 times in 100, all together less often.
    each = "; each interval is of 95%" if sentence.count(" [") > 2 and _is_ordered(groups[0], axis) else ""
    sentence = f"{sentence[:1].upper()}{sentence[1:]} ({count_repeats(rows)}{each}){_lost(table)}."
    return f"{alone} {sentence}" if alone else sentence


def _only_one(table: Table, row: Row, axis: str) -> str:
    """That, and why, only one of several values could be measured."""
    value = row.factors[axis]
    others = [row for row in table.rows if row.factors[axis] != value]
    if not others:
        return ""
    names = ", ".join(dict.fromkeys(str(row.factors[axis]) for row in others))
    if any(row.counted for row in others):
        return f"Of {axis} the times are known of {value} alone, so its speed is not compared with {names}."
    why = next((f" ({row.reason.rstrip('.')})" for row in others if row.reason), "")
    return f"Of {axis} only {value} could be measured, so it is not compared with {names}{why}."


def _along(group: Sequence[Row], axis: str) -> str:
    """For an axis of numbers: from its first value to its last, and what is best in between."""
    if not _is_ordered(group, axis):
        return _among(group, axis)
    ordered = sorted(group, key=lambda row: row.factors[axis])
    first, last = ordered[0], ordered[-1]
    memory = memory_change(first, last)
    return (
        f"{context_phrase(group, axis)}from {axis} {first.factors[axis]} to {last.factors[axis]} {_pace(first, last)}"
        f"{_between(ordered, axis)}{memory and f', {memory}'}{_learned(ordered, axis)}"
        f"{_between(ordered, axis, 'test_accuracy')}"
    )


def _is_ordered(group: Sequence[Row], axis: str) -> bool:
    """Whether the values of an axis are numbers."""
    return not any(isinstance(row.factors[axis], bool | str | type(None)) for row in group)


def _between(ordered: Sequence[Row], axis: str, measure: str = "") -> str:
    """The best of all values of an axis, where it is neither the first nor the last, and better than both.

    Args:
        ordered: the trials, from the axis's first value to its last.
        axis: the field.
        measure: what is to be high; without it, the speed.
    """
    values = [(row.by_block(measure) if measure else row.rates()).values() for row in ordered]
    levels = {index: median(samples) for index, samples in enumerate(values) if samples}
    best = max(levels, key=lambda index: levels[index], default=0)
    if best in (0, len(ordered) - 1):
        return ""
    row, ends = ordered[best], (ordered[0], ordered[-1])
    equal = [item for index, item in enumerate(ordered) if levels.get(index) == levels[best]]
    where = f"{axis} {' and '.join(str(item.factors[axis]) for item in equal)}"
    if measure:
        null, better = 0, [row.difference_from(end, measure) for end in ends]
        text = f"highest at {where} ({row.text(measure, interval=True)})"
    else:
        null, better = 1, [row.speed_against(end) for end in ends]
        text = f"fastest at {where} ({_rate(row)})"
    return f", {text}" if all(is_above(item, null) for item in better) else ""


def _pace(first: Row, last: Row) -> str:
    """How fast training goes in one trial and in another; where no rate is known, by how long a run takes."""
    faster = last.speed_against(first)
    if "images_per_s" in first.estimates and "images_per_s" in last.estimates:
        return f"training went from {first.text('images_per_s')} to {_rate(last)}, {_speed(faster, first, last)}"
    if "total_s" not in first.estimates or "total_s" not in last.estimates:
        return f"training went on at {_rate(first)} and at {_rate(last)}, which do not compare"
    took = f"a run went from {first.text('total_s')} to {last.text('total_s')} s"
    longer = first.speed_against(last)
    if faster is None or longer is None or faster.centre >= 1:
        return f"{took}, {_speed(faster, first, last)}"
    return f"{took}, {_speed_words(faster)}{_times(longer, first, last, 'as long')}"


def _among(group: Sequence[Row], axis: str) -> str:
    """For an axis of choices."""
    slowest, *_, fastest = sorted(group, key=lambda row: median(row.rates().values()))
    faster = _speed(fastest.speed_against(slowest), fastest, slowest)
    speed = f"in training, {fastest.factors[axis]} against {slowest.factors[axis]} is {faster}"
    quantized = "; ".join(filter(None, map(_quantized, group)))
    parts = [quantized or _best(group, axis), speed, memory_among(group, axis)]
    return f"{context_phrase(group, axis)}{'; '.join(filter(None, parts))}"


def _best(group: Sequence[Row], axis: str) -> str:
    """Which choice reached the highest test accuracy; only one that the repeats distinguish is called so."""
    tested = [row for row in group if "test_accuracy" in row.estimates]
    if not tested:
        return f"no test accuracy is known of any {axis}"
    best, *others = sorted(tested, key=lambda row: -row.estimates["test_accuracy"].centre)
    best_level = best.text("test_accuracy", interval=True)
    reached = f"{axis} {best.factors[axis]} reached a test accuracy of {best_level}{effort_phrase(tested, axis)}"
    if not others:
        return reached
    if any(row.estimates["test_accuracy"].low is None for row in tested):
        equal = [row for row in others if row.value_of("test_accuracy") == best.value_of("test_accuracy")]
        if equal:
            return f"{reached}, as did {_names(equal, axis)}"
        return f"{reached}, the highest that was seen, of too few repeats to rule out chance"
    verdicts: dict[str, list[Row]] = {"higher than": [], "indistinguishable from": [], "not compared with": []}
    for row in others:
        more = best.difference_from(row, "test_accuracy")
        verdict = "higher than" if is_above(more, 0) else "indistinguishable from" if more else "not compared with"
        verdicts[verdict].append(row)
    if len(verdicts["higher than"]) == len(others):
        return f"{reached}, the highest"
    return f"{reached}, {', '.join(f'{verdict} {_names(rows, axis)}' for verdict, rows in verdicts.items() if rows)}"


def _names(rows: Sequence[Row], axis: str) -> str:
    *names, last = (str(row.factors[axis]) for row in rows)
    return f"{', '.join(names)} and {last}" if names else last


def _quantized(row: Row) -> str:
    """What int8 does to accuracy, size and latency of one kind of quantization."""
    if "int8_test_accuracy" not in row.estimates:
        return ""
    int8, fp32 = (row.by_block(f"{form}_test_accuracy") for form in ("int8", "fp32"))
    changed = estimate(
        [int8[block] - fp32[block] for block in int8.keys() & fp32.keys()],
        resolution=resolution_of("int8_test_accuracy", row.counted),
    )
    parts = [
        f"{row.factors['quantization']}: int8 test accuracy {row.text('int8_test_accuracy', interval=True)}, "
        f"{format_interval(changed, with_sign(ACCURACY), null=0)} against its fp32 form"
    ]
    int8_bytes, fp32_bytes = row.text("int8_checkpoint_bytes"), row.text("fp32_checkpoint_bytes")
    if int8_bytes and fp32_bytes:
        parts.append(f"checkpoint {int8_bytes} against {fp32_bytes} bytes")
    before, after = (row.by_block(f"{form}_compiled_ms_p50") for form in ("fp32", "int8"))
    if common := before.keys() & after.keys():
        faster = estimate([before[block] / after[block] for block in common], "ratio")
        batch = row.records[0].config.get("inference_batch")
        parts.append(f"inference of {batch} images {_speed(faster, row, row)} as in fp32, both compiled")
    return ", ".join(parts)


def _speed(faster: Estimate | Contrast | None, row: Row, base: Row) -> str:
    if faster is None:
        return f"not compared: no block has both{_SAME_ENVIRONMENT}"
    return f"{_speed_words(faster)}{_times(faster, row, base, 'as fast')}"


def _speed_words(faster: Estimate | Contrast) -> str:
    verdict = verdict_of(faster, 1, "faster", "slower")
    return {"indistinguishable": "indistinguishable in speed: ", "unknown": ""}.get(verdict, f"{verdict}: ")


def _times(ratio: Estimate | Contrast, row: Row, base: Row, as_what: str) -> str:
    """A ratio of two trials, and how many blocks it is of, where it is not of all."""
    blocks = paired_note(ratio.n, row, base, _SAME_ENVIRONMENT)
    return f"{format_interval(ratio, RATIO, null=1)} times {as_what}{blocks}"


def _learned(ordered: Sequence[Row], axis: str) -> str:
    """What becomes of test accuracy, paired by block, and what else changes along with the axis."""
    first, last = ordered[0], ordered[-1]
    before, after = first.text("test_accuracy"), last.text("test_accuracy")
    if not before or not after:
        return ""
    effort = effort_phrase([row for row in ordered if "test_accuracy" in row.estimates], axis, ordered=True)
    went = f", test accuracy from {before} to {after}{effort}"
    more = last.difference_from(first, "test_accuracy")
    if more is None:
        return f"{went}, not compared: no block has both with the same versions"
    if more.low is None:
        return went
    by = f"{format_interval(more, with_sign(ACCURACY), null=0)}{paired_note(more.n, first, last)}"
    return f"{went}, {verdict_of(more, 0, 'higher', 'lower')}: {by}"


def _lost(table: Table) -> str:
    """What could not be measured, as it ended."""
    lost = [row for row in table.rows if not row.counted]
    if not lost:
        return ""
    texts = []
    for row in lost[:_MOST_LOST]:
        name = " ".join(f"{name} {value}" for name, value in without_derived_batch(row.factors).items())
        texts.append(f"{name} ({row.outcome})")
    more = f" and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    return f"; not measured: {', '.join(texts)}{more}"


def _level(row: Row) -> str:
    tested = row.text("test_accuracy")
    return _rate(row) + (f", test accuracy {tested}" if tested else "")


def _rate(row: Row) -> str:
    """How fast, with its unit."""
    name = "images_per_s" if "images_per_s" in row.estimates else "total_s"
    return f"{row.text(name)} {label_of(name)}"
