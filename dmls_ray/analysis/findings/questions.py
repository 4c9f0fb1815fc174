"""`Questions`: what a workload adds to comparisons and advice."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from dmls_ray.analysis.findings.measures import Measure, measures_of
from dmls_ray.analysis.memory import EXACT, memory_metric
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import DEFAULT, workload

if TYPE_CHECKING:
    from dmls_ray.analysis.findings.effects import Comparison
    from dmls_ray.analysis.findings.sweep_trials import SweepTrials


class Hooks:
    """What a workload adds to the analysis of its results, by a class that it names.

    Args:
        workload: the workload.
    """

    named_in: ClassVar[str]
    """The attribute of the workload with `module:Class`."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """Return the hooks of a workload.

        Raises:
            ConfigError: they cannot be loaded.
        """
        path = getattr(workload, cls.named_in)
        where = f"workload {workload.name}: its {cls.named_in} {path}"
        try:
            hooks = pkgutil.resolve_name(path)(workload)
        except Exception as error:
            raise ConfigError(f"{where} cannot be loaded ({type(error).__name__}: {error}); correct it.") from error
        if not isinstance(hooks, cls):
            raise ConfigError(f"{where} does not extend {cls.__module__}.{cls.__name__}; let it.")
        return hooks

    @classmethod
    def of_trials(cls, trials: Sequence[Trial]) -> Self:
        """Return the hooks of the trials' workload; trials of several workloads share the default."""
        workloads = {trial.workload.name: trial.workload for trial in trials} or {DEFAULT: workload(DEFAULT)}
        hooks = [cls.of(item) for item in workloads.values()]
        if len(set(map(type, hooks))) == 1:
            return hooks[0]
        return cls(hooks[0].workload)


class Questions(Hooks):
    """What is asked of the results of a workload. The defaults serve any workload.

    A workload names its subclass in `Workload.questions`; the subclass stands in `workloads/<name>/presentation.py`.
    """

    named_in = "questions"

    duration_set_by: ClassVar[str] = ""
    """Why the duration of a run is no cost: what sets it; empty where a run ends when its work is done."""

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
