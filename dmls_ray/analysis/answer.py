"""One sentence that answers a sweep's question, and says no more than the data allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from dmls_ray.analysis.formats import accuracy, bare, mib, number, rate, ratio, shown
from dmls_ray.analysis.groups import alike_but_for, along, count_values
from dmls_ray.analysis.stats import Comparison, Estimate, compare, difference
from dmls_ray.analysis.tables import Row, Table
from dmls_ray.config import DEFAULTS
from dmls_ray.record import METRICS, Outcome

_WORDS = {"faster": "faster", "slower": "slower", "indistinguishable": "indistinguishable in speed"}


def answer(table: Table, axis: str) -> str:
    """What the axis does to speed, memory and accuracy.

    Where it is a number, from its first value to its last; else which value is best.

    Args:
        table: the sweep's table.
        axis: the field that the sweep asks about.
    """
    if table.is_own:
        return _answer_own(table, axis)
    rows = [row for row in table.rows if row.rates()]
    if not rows:
        return f"No run ended ok, so nothing can be said of {axis}."
    if axis == "batch_per_rank" and table.held == "global_batch":
        axis = "global_batch"
    asked, alone = axis, ""
    if count_values(rows, axis) < 2:
        # The one that does vary is the question then: world_size at one global_batch, say.
        if axis in table.varied:
            alone = _only_one(table, rows[0], asked)
        axis = next((name for name in table.varied if count_values(rows, name) > 1), axis)
    if count_values(rows, axis) < 2:
        return alone or f"Only one value of {axis} was measured, so nothing can be compared: {_level(rows[0])}."
    groups = _comparable(along(rows, axis, table.held))
    if not groups:
        return f"No two trials differ in {axis} alone, so nothing can be said of it."
    sentence = "; ".join(_along(group, axis) for group in groups)
    if asked != axis and alone:
        return f"{alone} {sentence[:1].upper()}{sentence[1:]} ({_repeats(rows)})."
    return sentence[:1].upper() + sentence[1:] + f" ({_repeats(rows)})."


def answer_variants(table: Table, changed: Collection[str]) -> str:
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
    told = [sentence for rows in groups.values() if (sentence := _against_base(rows, changed))]
    if not told:
        return "There is no trial to compare with, so nothing can be said of what was changed."
    return f"{'; '.join(told)} ({_repeats([row for rows in groups.values() for row in rows])})."


def answer_search(table: Table, metric: str, *, minimizes: bool) -> str:
    """Which configuration reached the best value of a metric, among how many, and how the next one did.

    Args:
        table: the search's table.
        metric: what was searched for.
        minimizes: whether it is to be small.
    """
    known = [row for row in table.rows if row.level(metric) is not None]
    best_first = sorted(known, key=lambda row: _level_of(row, metric), reverse=not minimizes)
    if not best_first:
        return f"No run that ended ok told its {metric}, so nothing can be said of it."
    best, *others = best_first
    stopped = sum(record.stopped_epoch is not None and record.outcome is Outcome.OK
                  for row in table.rows for record in row.records)  # fmt: skip
    told = [f"The {'least' if minimizes else 'highest'} {metric} of {len(best_first)} configurations is "
            f"{number(_level_of(best, metric))}, with {_factors(best)}"]  # fmt: skip
    if others:
        told.append(f"the next is {number(_level_of(others[0], metric))}, with {_factors(others[0])}")
    if stopped:
        told.append(f"{stopped} were stopped early")
    return (
        f"{'; '.join(told)}. The best of many looks better than it is: run it again with several seeds (--mode bench) "
        "before you trust it."
    )


def _factors(row: Row) -> str:
    told = {name: value for name, value in row.factors.items() if value is not None}
    if "batch_per_rank" in told:
        told.pop("global_batch", None)
    return " ".join(f"{name}={number(value) if isinstance(value, float) else value}" for name, value in told.items())


def _answer_own(table: Table, axis: str) -> str:
    """What the axis does to the time of a run and to whatever a training function of the user's own measured."""
    rows = [row for row in table.rows if "total_s" in row.measures]
    if not rows:
        return f"No run ended ok, so nothing can be said of {axis}."
    if count_values(rows, axis) < 2:
        axis = next((name for name in table.varied if count_values(rows, name) > 1), axis)
    groups = _comparable(alike_but_for(rows, {axis}))
    if not groups:
        return f"No two trials differ in {axis} alone, so nothing can be compared."
    vocabulary = [name for name in ("images_per_s", *METRICS) if any(name in row.measures for row in rows)]
    sentence = "; ".join(_own_along(group, axis, [*vocabulary, *table.own_measures]) for group in groups)
    counts = sorted({row.measures["total_s"].n for row in rows})
    return f"{sentence[:1].upper()}{sentence[1:]} (n={' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))})."


def _own_along(group: Sequence[Row], axis: str, measures: Sequence[str]) -> str:
    """From the first value of the axis to its last; for choices, from what has least of a measure to what has most."""
    values = [row.factors[axis] for row in group]
    choices = any(isinstance(value, bool) or not isinstance(value, int | float) for value in values)
    parts = []
    for name in ("total_s", *measures):
        having = [row for row in group if row.by_block(name)]
        if len(having) > 1:
            ends = [pick(having, key=lambda row: _level_of(row, name) if choices else row.factors[axis])
                    for pick in (min, max)]  # fmt: skip
            parts.append(_own_change(*ends, axis=axis, name=name, choices=choices))
    if choices:
        return f"{_where(group, axis)}{'; '.join(parts)}"
    first, last = (pick(group, key=lambda row: row.factors[axis]) for pick in (min, max))
    return f"{_where(group, axis)}from {axis} {first.factors[axis]} to {last.factors[axis]} {', '.join(parts)}"


def _level_of(row: Row, name: str) -> float:
    level = row.level(name)
    assert level is not None, name
    return level


def _own_change(first: Row, last: Row, *, axis: str, name: str, choices: bool) -> str:
    low, high = (number(_level_of(row, name)) for row in (first, last))
    more = difference(last.by_block(name), first.by_block(name))
    told = "no block in common" if more is None else shown(more, "{:+.3g}".format)
    if more is not None and more.low is not None and more.high is not None and more.low <= 0 <= more.high:
        told += ", not told apart"
    words = "seconds a run" if name == "total_s" else name
    if not choices:
        return f"{words} went from {low} to {high} ({told})"
    return f"{words} from {low} with {axis} {first.factors[axis]} to {high} with {last.factors[axis]} ({told})"


def _against_base(rows: Sequence[Row], changed: Collection[str]) -> str:
    base = next((row for row in rows if not _changes(row, changed)), None)
    if base is None or len(rows) < 2:
        return ""
    told: dict[str, list[str]] = {"higher with": [], "lower with": [], "not told apart from it with": []}
    for row in sorted(rows, key=lambda row: -row.measures["test_accuracy"].median):
        more = difference(row.by_block("test_accuracy"), base.by_block("test_accuracy"))
        if row is base or more is None:
            continue
        verdict = "not told apart from it with"
        if more.low is not None and more.high is not None:
            verdict = "higher with" if more.low > 0 else "lower with" if more.high < 0 else verdict
        told[verdict].append(f"{_changes(row, changed)} ({shown(more, '{:+.3f}'.format)})")
    parts = ", ".join(f"{verdict} {', '.join(names)}" for verdict, names in told.items() if names)
    gaps = [row for row in rows if "accuracy_gap" in row.measures]
    least = min(gaps, key=lambda row: abs(row.measures["accuracy_gap"].median), default=base)
    gap = ""
    if "accuracy_gap" in base.measures and least is not base:
        gap = (
            f"; the gap to training accuracy, {bare(base.measures['accuracy_gap'], accuracy)}, is closest to zero with "
            f"{_changes(least, changed)}: {bare(least.measures['accuracy_gap'], accuracy)}"
        )
    where = {name: value for name, value in base.factors.items() if name not in changed}
    at = f"At {', '.join(f'{name} {value}' for name, value in where.items())}, against" if where else "Against"
    return f"{at} a test accuracy of {shown(base.measures['test_accuracy'], accuracy)} without, it is {parts}{gap}"


def _changes(row: Row, changed: Collection[str]) -> str:
    """What a row changes: `dropout=0.3`."""
    made = {name: value for name, value in row.factors.items() if name in changed and value != DEFAULTS[name]}
    return " ".join(f"{name}={value}" for name, value in made.items())


def _only_one(table: Table, row: Row, axis: str) -> str:
    """That, and why, only one of several values could be measured."""
    value = row.factors.get(axis)
    others = [other for other in table.rows if other.factors.get(axis) != value]
    if not others:
        return ""
    names = ", ".join(dict.fromkeys(str(other.factors.get(axis)) for other in others))
    why = others[0].reason.rstrip(".")
    return f"Of {axis} only {value} could be measured, so it is not compared with {names} ({why})."


def _comparable(groups: Sequence[list[Row]]) -> list[list[Row]]:
    return [group for group in groups if len(group) > 1]


def _along(group: Sequence[Row], axis: str) -> str:
    if any(isinstance(row.factors[axis], bool | str | type(None)) for row in group):
        return _among(group, axis)
    first, last = (pick(group, key=lambda row: row.factors[axis]) for pick in (min, max))
    return (
        f"{_where(group, axis)}from {axis} {first.factors[axis]} to {last.factors[axis]} training went from "
        f"{_rate(first)} to {_rate(last)} images/s, {_speed(compare(last.rates(), first.rates()))}"
        f"{_change(first, last, 'peak_mem_mib', 'peak memory', lambda value: bare(value, mib))}"
        f"{_change(first, last, 'test_accuracy', 'test accuracy', lambda value: shown(value, accuracy))}"
    )


def _among(group: Sequence[Row], axis: str) -> str:
    """For an axis of choices."""
    slowest, *_, fastest = sorted(group, key=lambda row: row.measures["images_per_s"].median)
    speed = (
        f"in training, {fastest.factors[axis]} against {slowest.factors[axis]} is "
        f"{_speed(compare(fastest.rates(), slowest.rates()))}"
    )
    if axis == "quantization":
        return f"{_where(group, axis)}{'; '.join(filter(None, map(_quantized, group)))}; {speed}"
    return f"{_where(group, axis)}{_best(group, axis)}; {speed}"


def _best(group: Sequence[Row], axis: str) -> str:
    """Which choice reached the highest test accuracy, if that can be told."""
    tested = [row for row in group if "test_accuracy" in row.measures]
    if not tested:
        return f"no test accuracy is known of any {axis}"
    best, *others = sorted(tested, key=lambda row: -row.measures["test_accuracy"].median)
    level = f"{axis} {best.factors[axis]} reached {shown(best.measures['test_accuracy'], accuracy)}"
    alike = [row for row in others if not _is_lower(row, best)]
    if not others:
        return f"{level} of test accuracy"
    if not alike:
        return f"{level}, the highest test accuracy"
    names = ", ".join(str(row.factors[axis]) for row in alike)
    if len(alike) == len(others):
        return f"{level} of test accuracy, not told apart from {names}"
    return f"{level}, the highest test accuracy but not told apart from {names}"


def _is_lower(row: Row, best: Row) -> bool:
    """Whether a row's test accuracy is below the best one's in the blocks they share, as far as repeats can tell."""
    less = difference(row.by_block("test_accuracy"), best.by_block("test_accuracy"))
    if less is None:
        return False
    return (less.median if less.high is None else less.high) < 0


def _quantized(row: Row) -> str:
    """What int8 does to accuracy, size and latency of one kind of quantization."""
    if "int8_test_accuracy" not in row.measures:
        return ""
    changed = difference(row.by_block("int8_test_accuracy"), row.by_block("fp32_test_accuracy"))
    parts = [
        f"{row.factors['quantization']}: int8 test accuracy {shown(row.measures['int8_test_accuracy'], accuracy)}, "
        f"{shown(changed, '{:+.3f}'.format)} against its own fp32 form"
    ]
    sizes = [row.measures.get(f"{form}_checkpoint_bytes") for form in ("int8", "fp32")]
    if all(sizes):
        parts.append("checkpoint {} against {} bytes".format(*(bare(size, mib) for size in sizes)))
    times = [row.by_block(f"{form}_compiled_ms_p50") for form in ("fp32", "int8")]
    comparison = compare(*times)
    if comparison is not None:
        batch = row.records[0].config["inference_batch"]
        parts.append(f"inference of {batch} images {_speed(comparison)} as in fp32, both compiled")
    return ", ".join(parts)


def _speed(comparison: Comparison | None) -> str:
    if comparison is None:
        return "with no block in common to compare"
    times = f"{shown(comparison.ratio, ratio)} times as fast"
    return times if comparison.verdict == "unknown" else f"{_WORDS[comparison.verdict]}: {times}"


def _change(first: Row, last: Row, measure: str, words: str, write: Callable[[Estimate], str]) -> str:
    one, other = first.measures.get(measure), last.measures.get(measure)
    if one is None or other is None:
        return ""
    unit = " MiB" if measure.endswith("_mib") else ""
    return f", {words} from {write(one)} to {write(other)}{unit}"


def _where(group: Sequence[Row], axis: str) -> str:
    """The other varied factors, which are equal in the group."""
    same: dict[str, Any] = {
        name: value
        for name, value in group[0].factors.items()
        if name != axis and all(row.factors[name] == value for row in group)
    }
    if "batch_per_rank" in same and "global_batch" in same:
        del same["global_batch"]
    told = ", ".join(f"{name} {value}" for name, value in same.items())
    return f"at {told}, " if told else ""


def _level(row: Row) -> str:
    return f"{_rate(row)} images/s, test accuracy {bare(row.measures.get('test_accuracy'), accuracy)}"


def _rate(row: Row) -> str:
    return bare(row.measures["images_per_s"], rate)


def _repeats(rows: Sequence[Row]) -> str:
    counts = sorted({row.measures["images_per_s"].n for row in rows})
    return f"n={counts[0]}" if len(counts) == 1 else f"n={counts[0]} to {counts[-1]}"
