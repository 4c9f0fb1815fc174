"""The answer on changes that were made one at a time: what each does to accuracy and to its gap to training."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.summary.answer import Answer, Finding, cut
from dmls_ray.analysis.summary.effects import NOT_COMPARED
from dmls_ray.analysis.summary.effort import describe_effort, training_caveat
from dmls_ray.analysis.summary.measures import SPEED, Measure
from dmls_ray.analysis.summary.phrases import as_sentence, describe_changes, join_names
from dmls_ray.analysis.table.axis_groups import group_by_other_factors
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.config.grid import BASELINE

_ACCURACY = Measure("test_accuracy", "points")
_GAP = Measure("accuracy_gap", "points")


def answer_on_variants(table: Table, changed: Collection[str]) -> Answer:
    """What each change, made alone, does to test accuracy and to its gap to training, against the trial without any.

    The gap and the speed are mentioned only where an interval distinguishes them.

    Args:
        table: the sweep's table.
        changed: the fields that variants change.
    """
    tested = [row for row in table.rows if row.by_block("test_accuracy")]
    groups = [group for rows in group_by_other_factors(tested, changed) if len(group := _base_first(rows, changed)) > 1]
    if not groups:
        return Answer("There is no trial to compare with, so nothing can be said of what was changed.")
    findings = []
    for measure, all_of_them in ((_ACCURACY, True), (_GAP, False), (SPEED, False)):
        for group in groups:
            if text := _text(group, changed, measure, all_of_them=all_of_them):
                topic = "gap to training" if measure is _GAP else measure.topic
                place = "" if len(groups) == 1 else f"{_place(group[0], changed)}: "
                findings.append(Finding(topic, f"{place}{text}"))
    place = "" if len(groups) == 1 else f"at {_place(groups[0][0], changed)}, "
    return Answer(as_sentence(f"{place}{_headline(groups[0], changed)}"), cut(findings))


def _base_first(rows: Sequence[Row], changed: Collection[str]) -> list[Row]:
    """The trial without any change, then the others; empty without such a trial."""
    base = next((row for row in rows if not describe_changes(row, changed)), None)
    return [] if base is None else [base, *(row for row in rows if row is not base)]


def _place(base: Row, changed: Collection[str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in base.factors.items() if name not in changed)


def _headline(group: Sequence[Row], changed: Collection[str]) -> str:
    base, *others = group
    compared = [(row, more) for row in others if (more := _ACCURACY.against(row, base)) is not None]
    if not compared:
        return f"No change is compared: {NOT_COMPARED.partition(': ')[2]}"
    highest, gain = max(compared, key=lambda item: item[1].centre)
    has_rival = gain.centre > 0 and not _ACCURACY.sign(gain)
    texts = []
    for sign, verb, pick in ((1, "gains", max), (-1, "loses", min)):
        found = [item for item in compared if _ACCURACY.sign(item[1]) == sign]
        if found:
            row, more = pick(found, key=lambda item: item[1].centre)
            most = " (the most)" if len(found) > 1 and not (has_rival and sign > 0) else ""
            caveat = training_caveat(row, base, _ACCURACY.name) if sign < 0 else ""
            texts.append(f"{describe_changes(row, changed)} {verb} {_amount(more)} of test accuracy{most}{caveat}")
    if not texts:
        farthest, more = max(compared, key=lambda item: _ACCURACY.size(item[1]))
        return f"no change is distinguished in test accuracy, the farthest {_change(farthest, more, changed)}"
    if len(texts) == 1 and "loses" in texts[0]:
        texts.insert(0, "no change gains test accuracy beyond chance")
    if has_rival:
        texts[0] += f"; the highest, {_change(highest, gain, changed)}, is not distinguished"
    chance = "" if gain.low is not None else f" (n={gain.n}, so perhaps by chance)"
    return f"{'; '.join(texts)}{chance}"


def _change(row: Row, more: Contrast, changed: Collection[str]) -> str:
    return f"{describe_changes(row, changed)} ({_ACCURACY.effect(more)})"


def _amount(more: Contrast) -> str:
    return _ACCURACY.effect(more, interval=False).lstrip("+-")


def _text(group: Sequence[Row], changed: Collection[str], measure: Measure, *, all_of_them: bool) -> str:
    """What each change does to a measure, by its sign; without a difference beyond chance only if all are asked for."""
    base, *others = group
    # Older records have the train accuracy as a mean over the epoch, with dropout and augmentation on.
    if measure is _GAP and not all("train_eval_accuracy" in run.metrics for row in group for run in row.counted):
        return ""
    more_words = ("faster", "slower") if measure is SPEED else ("higher", "lower")
    words = {1: more_words[0], -1: more_words[1], 0: "not distinguished"}
    by_sign: dict[int, list[str]] = {sign: [] for sign in words}
    apart = []
    for row in sorted(others, key=lambda item: -(item.value_of(measure.name) or 0.0)):
        more = measure.against(row, base)
        if more is not None:
            by_sign[measure.sign(more)].append(f"{describe_changes(row, changed)} ({measure.effect(more)})")
        elif all_of_them:
            apart.append(describe_changes(row, changed))
    shown = {sign: names for sign, names in by_sign.items() if names and (sign or all_of_them)}
    texts = [f"{words[sign]} with {', '.join(names)}" for sign, names in shown.items()]
    if apart:
        texts.append(f"{join_names(apart, separator=', ')} {NOT_COMPARED}")
    if not texts:
        return ""
    level = f"{base.text(measure.name)} at {BASELINE}; " if measure is not SPEED else ""
    effort = describe_effort(group, only_differing=True) if measure is _ACCURACY else ""
    return f"{level}{'; '.join(texts)}{effort and f'; along with {effort}'}"
