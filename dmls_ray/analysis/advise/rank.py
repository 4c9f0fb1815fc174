"""The trials of a sweep ranked by an objective: values, intervals against the best one, verdicts, and the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.advise.candidates import (
    Candidate,
    Excluded,
    Ranked,
    Verdict,
    judge_trials,
    model_of,
    rank_against,
)
from dmls_ray.analysis.advise.objectives import OBJECTIVES, Objective, Request, settle
from dmls_ray.analysis.advise.pareto import front_of
from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.losers import loss_of
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import as_dict
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.storage.sweep_file import read_sweep
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True)
class Advice:
    """What the runs of a sweep say to an objective."""

    objective: Objective
    table: Table
    ranked: Sequence[Ranked]
    """The candidates, the best first; none where no trial can be chosen."""
    excluded: Sequence[tuple[Trial, Excluded]]
    """The trials that cannot be chosen, and why."""
    front: Sequence[str]
    """trial_id of those that no other one beats in all of `front_metrics`, by their means."""
    front_metrics: Sequence[str]
    loss: Effect | None
    """By how much the best one is less accurate than the most accurate trial, beyond chance."""

    @property
    def best(self) -> Candidate | None:
        """None where no trial can be chosen."""
        return self.ranked[0].candidate if self.ranked else None

    def with_verdict(self, verdict: Verdict) -> list[Trial]:
        """The trials with a verdict, the best first."""
        return [item.candidate.row for item in self.ranked if item.verdict == verdict]

    def to_dict(self) -> dict[str, Any]:
        """All values as plain data, without texts; intervals have the keys value, low and high."""
        trials = []
        for item in self.ranked:
            value, effect = as_dict(item.candidate.value), item.effect and as_dict(item.effect)
            trials.append(self._describe(item.candidate.row, item.verdict) | value | {"against_best": effect})
        for row, reason in self.excluded:
            trials.append(self._describe(row, reason.kind) | {"reason": reason.text})
        loss = None
        if self.loss is not None:
            loss = {
                "metric": self.loss.measure.name,
                "base": self.loss.pair.base.trial_id,
                **as_dict(self.loss.contrast),
            }
        return {
            "objective": self.objective.name,
            "metric": self.objective.metric,
            "minimizes": self.objective.minimizes,
            "target": self.objective.target,
            "is_ratio": not self.objective.is_learned,
            "trials": trials,
            "front_metrics": list(self.front_metrics),
            "loss": loss,
        }

    def _describe(self, row: Trial, verdict: str) -> dict[str, Any]:
        return {
            "trial_id": row.trial_id,
            "config": row.factors,
            "verdict": verdict,
            "n": len(row.counted),
            "outcome": row.outcome,
            "is_on_front": row.trial_id in self.front,
        }


def advise(results: Results, name: str, **options: Any) -> Advice:
    """Which configuration to use for an objective.

    Args:
        results: the runs of a sweep.
        name: the objective, as after `--for`.
        options: fields of `Request`.

    Raises:
        ConfigError: there is no such objective, these runs cannot be judged by it, or an option has no use.
    """
    if not results.records:
        raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
    if name not in OBJECTIVES:
        raise ConfigError(f"--for {name} is unknown; choose from {', '.join(OBJECTIVES)}.")
    question = SweepQuestion.of(read_sweep(results.folder).get("sessions", []))
    table = make_table(results, best_by=question.best_by)
    request = Request(**options)
    any_accuracy = request.any_accuracy
    objective = settle(name, table, request)
    candidates, excluded = judge_trials(table, objective, any_accuracy=any_accuracy)
    ranked: list[Ranked] = []
    loss = None
    if candidates:
        best, others = candidates[0], candidates[1:]
        model = model_of(table, objective, candidates)
        ranked = [Ranked(best, "best"), *(rank_against(best, item, objective, model) for item in others)]
        # A target says what the accuracy must come to.
        if not objective.is_learned and objective.target is None:
            loss = loss_of(table, best.row, table.rows)
    front = front_of(
        table,
        objective.metric if objective.is_learned else "test_accuracy",
        minimizes=objective.is_learned and objective.minimizes,
        any_accuracy=any_accuracy or request.target is not None,
    )
    on_front: list[str] = []
    if len(front.axes) > 1:
        on_front = [front.rows[index].trial_id for index in front.places]
    return Advice(
        objective=objective,
        table=table,
        ranked=ranked,
        excluded=excluded,
        front=on_front,
        front_metrics=front.axes,
        loss=loss,
    )
