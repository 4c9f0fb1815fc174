"""The sentence on changes that were made one at a time: what each does to accuracy and to its gap to training."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dmls_ray.analysis.stats.formatting import ACCURACY, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import verdict_of
from dmls_ray.analysis.summary.effort import effort_phrase
from dmls_ray.analysis.summary.phrases import count_repeats, paired_note
from dmls_ray.analysis.table.axis_groups import group_by_other_factors
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row

_ALONE = "not compared, since no block has both with the same versions,"


def summarize_variants(table: Table, changed: Collection[str]) -> str:
    """What each change, made alone, does to test accuracy and to its gap to training, against the trial without any.

    The gap is mentioned only where an interval distinguishes it.

    Args:
        table: the sweep's table.
        changed: the fields that variants change.
    """
    tested = [row for row in table.rows if row.by_block("test_accuracy")]
    groups = group_by_other_factors(tested, changed)
    texts = [text for rows in groups if (text := _against_base(rows, changed))]
    if not texts:
        return "There is no trial to compare with, so nothing can be said of what was changed."
    together = ""
    if len(tested) - len(groups) > 1:
        of_each = " of each quantity" if any(_GAP in text for text in texts) else ""
        together = f"; intervals{of_each} hold together"
    return f"{'; '.join(texts)} ({count_repeats(tested)}{together})."


_GAP = "the gap between train and test accuracy"


def _against_base(rows: Sequence[Row], changed: Collection[str]) -> str:
    base = next((row for row in rows if not _changes(row, changed)), None)
    if base is None or len(rows) < 2:
        return ""
    others = sorted((row for row in rows if row is not base), key=lambda row: -row.estimates["test_accuracy"].centre)
    accuracy = _verdicts(others, base, changed, "test_accuracy")
    if not accuracy:
        return ""
    # Older records have the train accuracy as a mean over the epoch, with dropout and augmentation on.
    is_evaluated = all(record.train_eval_accuracy is not None for row in rows for record in row.counted)
    gap = _verdicts(others, base, changed, "accuracy_gap", all_of_them=False) if is_evaluated else ""
    if gap:
        gap = f"; {_GAP}, {base.text('accuracy_gap')} without, is {gap}"
    shared = ", ".join(f"{name} {value}" for name, value in base.factors.items() if name not in changed)
    at = f"At {shared}, against" if shared else "Against"
    without = f"{base.text('test_accuracy', interval=True)} without{effort_phrase([base, *others])}"
    return f"{at} a test accuracy of {without}, it is {accuracy}{gap}"


def _verdicts(
    rows: Sequence[Row], base: Row, changed: Collection[str], metric: str, *, all_of_them: bool = True
) -> str:
    """What each change does to a metric, by verdict; those that are indistinguishable only if all are asked for."""
    texts: dict[str, list[str]] = {"higher": [], "lower": [], "indistinguishable": [], _ALONE: []}
    for row in rows:
        more = row.difference_from(base, metric)
        if more is None:
            if row.by_block(metric) and base.by_block(metric):
                texts[_ALONE].append(_changes(row, changed))
            continue
        verdict = verdict_of(more, 0, "higher", "lower").replace("unknown", "indistinguishable")
        by = f"{format_interval(more, with_sign(ACCURACY), null=0)}{paired_note(more.n, row, base)}"
        texts[verdict].append(f"{_changes(row, changed)} ({by})")
    shown = texts if all_of_them else {verdict: texts[verdict] for verdict in ("higher", "lower")}
    return ", ".join(f"{verdict} with {', '.join(names)}" for verdict, names in shown.items() if names)


def _changes(row: Row, changed: Collection[str]) -> str:
    """What a row changes: `dropout=0.3`."""
    specs = row.workload.specs()
    made = {name: value for name, value in row.factors.items() if name in changed and value != specs[name].default}
    return " ".join(f"{name}={value}" for name, value in made.items())
