"""The runs of a sweep and its answer as runs of an experiment tracker, before one of them is called.

The name of the results folder is the project, and that of the sweep the group. A run keeps its id, so that it replaces
what an earlier export made of it. Metrics of epochs begin with `epoch/`: those without it are the results of the run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmls_ray.analysis.export.text_tables import answer_markdown
from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.prices import machine_type
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.summary import AnswerTable, SweepSummary
from dmls_ray.analysis.trials.trial import describe_configuration
from dmls_ray.records.model import OF_A_FIELD, RESERVED, RunRecord, distinct_names
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_times import ended_at, rising_steps, started_at

ANSWER = "answer"
"""Name and id of the run that has the answer."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run of a tracker."""

    id: str
    """Unique in the project."""
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str]
    """What is known of the run that is no number."""
    metrics: Mapping[str, float]
    """The results."""
    epochs: Sequence[tuple[int, Mapping[str, float]]] = ()
    """Step and metrics of each epoch."""
    text: str = ""
    """Markdown that describes it."""
    is_ok: bool = True
    started_at: float
    """Seconds since 1970."""
    ended_at: float


@dataclass(frozen=True)
class TrackedSweep:
    """A sweep as a project of a tracker."""

    project: str
    group: str
    runs: Sequence[TrackedRun]
    """Those that started, and the answer."""


def tracked_sweep(reading: SweepSummary) -> TrackedSweep:
    """The runs that started and the answer of a sweep of at least one run."""
    runs = []
    for row in reading.table.rows:
        for record in row.records:
            if record.outcome is not Outcome.SKIPPED:
                runs.append(_tracked_run(record, f"{describe_configuration(row.factors)} repeat={record.repeat}"))
    runs.append(_tracked_answer(reading.answer, reading.results.records))
    project = re.sub(r"[^\w.-]", "-", Path(reading.results.where).resolve().name)
    return TrackedSweep(project, reading.results.records[0].sweep or project, runs)


def _tracked_run(record: RunRecord, name: str) -> TrackedRun:
    factors = factors_of(record)
    heads = distinct_names(factors, RESERVED, OF_A_FIELD)
    config = {"trial_id": record.trial_id, "repeat": record.repeat, "run_seed": record.seed}
    steps = zip(rising_steps(record.epochs), record.epochs, strict=True)
    return TrackedRun(
        id=record.run_id,
        name=name,
        config=config | {heads[field_name]: value for field_name, value in factors.items()},
        facts={"outcome": record.ending, "reason": record.reason, "machine": machine_type(record)},
        metrics=_numbers(record, record.metrics),
        epochs=[(step, _numbers(record, epoch.metrics, "epoch/")) for step, epoch in steps],
        is_ok=record.outcome is Outcome.OK,
        started_at=started_at(record),
        ended_at=ended_at(record),
    )


def _numbers(record: RunRecord, metrics: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Finite numbers by name, without times that mean nothing."""
    numbers = {}
    for name, number in metrics.items():
        if math.isfinite(number) and (record.mode == "bench" or not is_time(name)):
            numbers[prefix + name] = number
    return numbers


def _tracked_answer(answer: AnswerTable, records: Sequence[RunRecord]) -> TrackedRun:
    """The headline, and the effects of the table with the ends of their intervals."""
    metrics = {}
    for effect in answer.json_fields()["effects"]:
        name = "/".join(part for part in (effect.pair, effect.where, effect.metric) if part)
        for end, number in (("value", effect.centre), ("low", effect.low), ("high", effect.high)):
            if number is not None and math.isfinite(number):
                metrics[f"{name}/{end}"] = number
    return TrackedRun(
        id=ANSWER,
        name=ANSWER,
        facts={"headline": answer.headline, "undecided": answer.undecided},
        metrics=metrics,
        text=answer_markdown(answer),
        started_at=min(started_at(record) for record in records),
        ended_at=max(ended_at(record) for record in records),
    )
