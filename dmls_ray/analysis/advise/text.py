"""The English of `dmls-ray advise`: a headline, a table and notes."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from dmls_ray.analysis.advise.objectives import Objective
from dmls_ray.analysis.advise.pareto import costs_of
from dmls_ray.analysis.advise.rank import Advice, Ranked
from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.memory import EXACT
from dmls_ray.analysis.metrics import format_of, label_of
from dmls_ray.analysis.results import field_names
from dmls_ray.analysis.stats.formatting import RATIO, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Interval
from dmls_ray.analysis.trials.trial import describe_configuration, factor_cells

SPARE = ("front", "outcome", "n")
"""Heads of `frame` that a narrow terminal may leave out, the first first."""


def headline(advice: Advice) -> str:
    """The configuration to use, and how many others have which verdict."""
    objective, best = advice.objective, advice.best
    if best is None:
        return f"For {objective.name} no configuration can be chosen; the column verdict says why."
    value = f"{objective.label} {best.text}, n={len(objective.samples(best.row))}"
    counts = Counter(item.verdict for item in advice.trials)
    return (
        f"For {objective.name} use {best.name}: {value}. Others: {counts['worse']} "
        f"worse, {counts['not distinguished']} not distinguished, {counts['not compared']} not compared, "
        f"{len(advice.excluded)} left out."
    )


def notes(advice: Advice) -> list[str]:
    """What a reader must know to follow the advice."""
    table, objective, texts = advice.table, advice.objective, []
    if advice.loss is not None:
        texts.append(f"The best one loses accuracy: {_describe_loss(advice.loss)}.")
    if advice.with_verdict("loses"):
        texts.append("Trials that lose accuracy are left out; --any-accuracy takes them in.")
    if advice.front:
        front_metrics = ", ".join(map(label_of, advice.front_metrics))
        texts.append(f"Front: no other trial is as good in all of {front_metrics}, by means.")
    fewest = min(len(row.counted) for row in table.rows if row.counted)
    if fewest < MIN_REPEATS and objective.metric not in EXACT:
        texts.append(f"Chance is not known from n={fewest}: intervals need --repeats {MIN_REPEATS}.")
    by_test_samples = objective.target is not None or objective.metric in ("test_accuracy", "test_loss")
    if by_test_samples and len(table.rows) > 1:
        texts.append("Chosen by test samples, so the accuracy on new samples is lower; choose by validation_accuracy.")
    # Fields of which another value is more work in a value of the objective.
    fields = {"model", "dataset", "image_size", "train"}
    if objective.metric == "total_s":
        fields.add("epochs")
    work = ", ".join(sorted(fields.intersection(table.varied)))
    if objective.work_matters and work:
        texts.append(f"The trials do not do equal work: they differ in {work}.")
    return texts


def _describe_loss(loss: Effect) -> str:
    metric = loss.measure.name
    effect = format_interval(loss.contrast, with_sign(format_of(metric)), null=0)
    if loss.measure.kind == "ratio":
        effect = f"{format_interval(loss.contrast, RATIO, null=1)} times"
    return f"{label_of(metric)} {effect} against {describe_configuration(loss.pair.base.factors)}"


def frame(advice: Advice) -> pd.DataFrame:
    """The trials as texts, the best first."""
    rows = [_cells(advice, item) for item in advice.trials]
    return pd.DataFrame(rows, columns=field_names(rows), dtype=object)


def _cells(advice: Advice, item: Ranked) -> dict[str, str]:
    row, value, verdict = item.row, item.text, str(item.verdict)
    if item.value is None:
        value, verdict = "", item.text
    cells = {f"{advice.objective.label} [95%]": value}
    for name in (*costs_of(advice.table), "test_accuracy"):
        if name != advice.objective.metric and advice.table.has(name):
            cells[label_of(name)] = row.text(name)
    cells |= {
        "against best [95%]": _describe_effect(advice.objective, item.against_best),
        "n": str(len(row.counted)),
        "front": "yes" if row.trial_id in advice.front else "",
        "verdict": verdict,
        "outcome": row.outcome,
    }
    return factor_cells(row.factors, other_headers=cells) | cells


def _describe_effect(objective: Objective, effect: Interval | None) -> str:
    if objective.is_learned:
        return format_interval(effect, with_sign(objective.form), null=0)
    return format_interval(effect, RATIO, null=1)
