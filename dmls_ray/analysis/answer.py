"""One sentence that answers a sweep's question, and says no more than the data allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from statistics import median

from dmls_ray.analysis.answer_own import answer_own
from dmls_ray.analysis.formats import accuracy, bare, rate, ratio, seconds, shown, signed, whole
from dmls_ray.analysis.groups import compared_along, count_values, where
from dmls_ray.analysis.measures import MEASURES
from dmls_ray.analysis.rows import Row, Table
from dmls_ray.analysis.stats import Comparison, Estimate, compare, difference
from dmls_ray.config import DEFAULTS

_WORDS = {"faster": "faster", "slower": "slower", "indistinguishable": "indistinguishable in speed"}


def answer(table: Table, axis: str) -> str:
    """What the axis does to speed, memory and accuracy.

    Where it is a number, from its first value to its last; else which value is best.

    Args:
        table: the sweep's table.
        axis: the field that the sweep asks about.
    """
    if table.is_own:
        return answer_own(table, axis)
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
    groups = compared_along(rows, axis, table.held)
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
        told[verdict].append(f"{_changes(row, changed)} ({shown(more, signed(accuracy))})")
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


def _along(group: Sequence[Row], axis: str) -> str:
    if any(isinstance(row.factors[axis], bool | str | type(None)) for row in group):
        return _among(group, axis)
    first, last = (pick(group, key=lambda row: row.factors[axis]) for pick in (min, max))
    return (
        f"{where(group, axis)}from {axis} {first.factors[axis]} to {last.factors[axis]} {_pace(first, last)}"
        f"{_change(first, last, 'peak_mem_mib', 'peak memory', lambda value: bare(value, whole))}"
        f"{_change(first, last, 'test_accuracy', 'test accuracy', lambda value: shown(value, accuracy))}"
    )


def _pace(first: Row, last: Row) -> str:
    """How fast training goes in one trial and in another; where no rate is known, by how long a run takes."""
    faster = compare(last.rates(), first.rates())
    if "images_per_s" in first.measures and "images_per_s" in last.measures:
        return f"training went from {bare(first.measures['images_per_s'], rate)} to {_rate(last)}, {_speed(faster)}"
    times = [bare(row.measures["total_s"], seconds) for row in (first, last)]
    took = f"a run went from {times[0]} to {times[1]} s"
    longer = compare(first.rates(), last.rates())
    if faster is None or longer is None or faster.ratio.centre >= 1:
        return f"{took}, {_speed(faster)}"
    verdict = "" if faster.verdict == "unknown" else f"{_WORDS[faster.verdict]}: "
    return f"{took}, {verdict}{shown(longer.ratio, ratio)} times as long"


def _among(group: Sequence[Row], axis: str) -> str:
    """For an axis of choices."""
    slowest, *_, fastest = sorted(group, key=lambda row: median(row.rates().values()))
    speed = (
        f"in training, {fastest.factors[axis]} against {slowest.factors[axis]} is "
        f"{_speed(compare(fastest.rates(), slowest.rates()))}"
    )
    quantized = [text for row in group if (text := _quantized(row))]
    if quantized:
        return f"{where(group, axis)}{'; '.join(quantized)}; {speed}"
    return f"{where(group, axis)}{_best(group, axis)}; {speed}"


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
    if any(row.measures["test_accuracy"].low is None for row in tested):
        return f"{level} of test accuracy, the highest that was seen, of too few repeats to tell chance apart"
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
        f"{shown(changed, signed(accuracy))} against its own fp32 form"
    ]
    sizes = [row.measures.get(f"{form}_checkpoint_bytes") for form in ("int8", "fp32")]
    if all(sizes):
        parts.append("checkpoint {} against {} bytes".format(*(bare(size, whole) for size in sizes)))
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


def _level(row: Row) -> str:
    tested = row.measures.get("test_accuracy")
    return _rate(row) + (f", test accuracy {bare(tested, accuracy)}" if tested else "")


def _rate(row: Row) -> str:
    """How fast, with its unit."""
    name = "images_per_s" if "images_per_s" in row.measures else "total_s"
    return f"{bare(row.measures[name], MEASURES[name].form)} {MEASURES[name].head}"


def _repeats(rows: Sequence[Row]) -> str:
    counts = sorted({len(row.rates()) for row in rows})
    return f"n={counts[0]}" if len(counts) == 1 else f"n={counts[0]} to {counts[-1]}"
