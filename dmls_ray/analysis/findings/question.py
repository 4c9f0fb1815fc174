"""The question of a sweep, and the answer of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.findings.answer import Answer, answer_along
from dmls_ray.analysis.findings.changes import answer_on_changes
from dmls_ray.analysis.findings.critical import answer_on_critical_batch, critical_batch
from dmls_ray.analysis.findings.search import answer_of_search
from dmls_ray.analysis.findings.sweep_trials import SweepTrials


@dataclass(frozen=True, kw_only=True)
class SweepQuestion:
    """The question of a sweep."""

    text: str = ""
    """In words."""
    varied: tuple[str, ...] = ()
    """Fields that were given several values."""
    axis: str | None = None
    """The field that it asks about; None for the first that varies."""
    changed: tuple[str, ...] = ()
    """Fields that were changed one at a time."""
    metric: str | None = None
    """What was searched for; None where runs were measured."""
    minimizes: bool = False
    """Whether less of the metric is better."""
    asked: frozenset[str] = frozenset()
    """run_id of every run that the last call asked for; empty where that is not known, as in a search."""
    is_fresh: bool = False
    """Whether that call started a new folder, which the same command would not continue."""

    @property
    def best_by(self) -> tuple[str, bool] | None:
        """What was searched for, and whether less of it is better; None where runs were measured."""
        return (self.metric, self.minimizes) if self.metric else None

    @classmethod
    def of(cls, sessions: Sequence[Mapping[str, Any]]) -> SweepQuestion:
        """What the calls that filled a folder asked: what any of them varied, and the last one's axis."""
        values: dict[str, set[str]] = {}
        for session in sessions:
            for name, given in session.get("axes", {}).items():
                values.setdefault(name, set()).update(map(repr, given))
        last = sessions[-1] if sessions else {}
        trials, repeats = last.get("trials", []), last.get("repeats", 0)
        return cls(
            text=last.get("question", ""),
            varied=tuple(name for name, given in values.items() if len(given) > 1),
            axis=last.get("axis"),
            changed=tuple(last.get("changed", ())),
            metric=last["metric"] if last.get("mode") == "search" else None,
            minimizes=bool(last.get("minimizes")),
            asked=frozenset(f"{trial}-{repeat}" for trial in trials for repeat in range(repeats)),
            is_fresh="--fresh" in last.get("command", []),
        )

    def ask(self, trials: SweepTrials) -> None:
        """Note what is asked on the trials of the sweep: of its field, if that varies, else of the first that does."""
        varied = next(iter(self.varied), self.axis or "batch_per_rank")
        trials.axis = self.axis if self.axis in trials.varied else varied
        trials.changed = self.changed


def answer_of(trials: SweepTrials, question: SweepQuestion) -> Answer:
    """The answer of a sweep's trials to its question."""
    if question.metric:
        return answer_of_search(trials, question.metric, minimizes=question.minimizes)
    return answer_on_changes(trials) if question.changed else answer_on_axis(trials, trials.axis)


def answer_on_axis(trials: SweepTrials, axis: str) -> Answer:
    """What a field does to the metrics of the workload; of global_batch, where it stops to save steps to a target."""
    critical = critical_batch(trials) if axis == "global_batch" else None
    if critical is not None:
        return answer_on_critical_batch(critical)
    return answer_along(trials, axis)
