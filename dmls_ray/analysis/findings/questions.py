"""`Questions`: what a workload adds to comparisons and advice."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dmls_ray.analysis.findings.measures import Measure, measures_of
from dmls_ray.analysis.memory import EXACT, memory_metric
from dmls_ray.analysis.trials.trial import Row
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import DEFAULT, workload

if TYPE_CHECKING:
    from dmls_ray.analysis.findings.claims import Claim
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
    scales_world_size: ClassVar[bool] = True
    """Whether more ranks may be faster."""
    tunes_training: ClassVar[bool] = False
    """Whether the fields of `TrainingConfig` mean what they mean there, so that advice may name them."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def measures(self, rows: Sequence[Row]) -> list[Measure]:
        """By what these trials are compared, the most important first."""
        return measures_of(rows)

    def judged(self, rows: Sequence[Row]) -> list[str]:
        """All that an answer may have a verdict on: `measures`, what it compares within runs, and memory.

        They share the errors of the answer. Memory that is the same in every repeat makes none.
        """
        judged = [measure.name for measure in self.measures(rows)]
        memory = memory_metric(rows)
        if memory and memory not in EXACT:
            judged.append(memory)
        return judged

    def claims_within_trials(self, trials: SweepTrials) -> list[Claim]:
        """The comparisons of two values of the same runs."""
        return []

    def comparisons_within_trials(self, trials: SweepTrials) -> list[Comparison]:
        """Their effects, with what goes along with them: the first rows of the answer, about which its headline is."""
        return []

    def can_run(self, row: Row, axis: str, value: Any) -> bool:
        """Whether a trial can be run with another value of a field."""
        return True

    def scope(self, factors: Sequence[Mapping[str, Any]]) -> str:
        """What the results say nothing of: `another model than ...`."""
        return f"another workload than {self.workload.name}"


def questions_of_rows(rows: Sequence[Row]) -> Questions:
    """Return the questions of the rows' workload; rows of several workloads share the default."""
    workloads = {row.workload.name: row.workload for row in rows} or {DEFAULT: workload(DEFAULT)}
    first, *others = [questions_of(item) for item in workloads.values()]
    if all(type(item) is type(first) for item in others):
        return first
    return Questions(first.workload)


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
