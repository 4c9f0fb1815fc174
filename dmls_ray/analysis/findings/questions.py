"""`Questions`: what a workload adds to comparisons and advice."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from dmls_ray.analysis.findings.measures import Measure, measures_of
from dmls_ray.analysis.memory import EXACT, memory_metric
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import DEFAULT, workload

if TYPE_CHECKING:
    from dmls_ray.analysis.findings.effects import Comparison
    from dmls_ray.analysis.findings.sweep_trials import SweepTrials

Hooks = TypeVar("Hooks")


class Questions:
    """What is asked of the results of a workload. The defaults serve any workload.

    A workload names its subclass in `Workload.questions`; the subclass stands in `workloads/<name>/presentation.py`.

    Args:
        workload: the workload that the trials are of.
    """

    duration_set_by: ClassVar[str] = ""
    """Why the duration of a run is no cost: what sets it; empty where a run ends when its work is done."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def measures(self, trials: Sequence[Trial]) -> list[Measure]:
        """By what these trials are compared, the most important first."""
        return measures_of(trials)

    def judged(self, trials: Sequence[Trial]) -> list[str]:
        """All that an answer may have a verdict on: `measures`, what it compares within runs, and memory.

        They share the errors of the answer. Memory that is the same in every repeat makes none.
        """
        judged = [measure.name for measure in self.measures(trials)]
        memory = memory_metric(trials)
        if memory and memory not in EXACT:
            judged.append(memory)
        return judged

    def comparisons_within_trials(self, trials: SweepTrials) -> list[Comparison]:
        """The comparisons of two values of the same runs: the first rows of the answer, which its headline is about."""
        return []


def questions_of_trials(trials: Sequence[Trial]) -> Questions:
    """Return the questions of the trials' workload; trials of several workloads share the default."""
    workloads = {trial.workload.name: trial.workload for trial in trials} or {DEFAULT: workload(DEFAULT)}
    questions = list(map(questions_of, workloads.values()))
    if len(set(map(type, questions))) == 1:
        return questions[0]
    return Questions(questions[0].workload)


def questions_of(workload: Workload) -> Questions:
    """Return the questions of a workload.

    Raises:
        ConfigError: they cannot be loaded.
    """
    return hooks_of(workload, "questions", Questions)


def hooks_of(workload: Workload, name: str, kind: type[Hooks]) -> Hooks:
    """Return the object of hooks that a workload names.

    Args:
        workload: the workload.
        name: the attribute of the workload with `module:Class`.
        kind: what the class extends.

    Raises:
        ConfigError: it cannot be loaded.
    """
    path = getattr(workload, name)
    where = f"workload {workload.name}: its {name} {path}"
    try:
        hooks = pkgutil.resolve_name(path)(workload)
    except Exception as error:
        raise ConfigError(f"{where} cannot be loaded ({type(error).__name__}: {error}); correct it.") from error
    if not isinstance(hooks, kind):
        raise ConfigError(f"{where} does not extend {kind.__module__}.{kind.__name__}; let it.")
    return hooks
