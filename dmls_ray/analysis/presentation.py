"""`Presentation`: what a workload adds to tables, sentences, figures and advice.

The defaults serve any workload. A workload names its subclass in `Workload.presentation`; the subclass stands in
`workloads/<name>/presentation.py`, since it needs pandas.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dmls_ray.analysis.memory import EXACT, memory_metric
from dmls_ray.analysis.summary.answer import Answer
from dmls_ray.analysis.summary.axis_answer import answer_along
from dmls_ray.analysis.summary.measures import Measure, measures_of
from dmls_ray.analysis.table.columns import default_columns
from dmls_ray.analysis.table.model import Column, Note, Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.model import RunRecord
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import DEFAULT, usable_workloads, warn, workload

if TYPE_CHECKING:
    from dmls_ray.analysis.figures.chart import Chart
    from dmls_ray.analysis.published.matching import Match
    from dmls_ray.analysis.results import Results
    from dmls_ray.analysis.summary.claims import Claim
    from dmls_ray.analysis.table.layouts import RenderedTable


class Presentation:
    """How the results of a workload are read.

    Args:
        workload: the workload that the rows are of.
    """

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {}
    """Figures besides those of every workload, by name; they come first."""
    layouts: ClassVar[Mapping[str, Callable[..., RenderedTable]]] = {}
    """Tables of `--by` besides those of training, by name."""
    loss_unit: ClassVar[str] = "as the training function reports it"
    """Unit of a loss on the axis of a figure."""
    duration_set_by: ClassVar[str] = ""
    """Why the duration of a run is no cost: what sets it; empty where a run ends when its work is done."""
    always_named: ClassVar[tuple[str, ...]] = ()
    """Fields that are named below a table where they do not vary; without any, all of a workload's own."""
    verb: ClassVar[str] = "run"
    """What a trial does that is faster than another: `trains`."""
    scales_world_size: ClassVar[bool] = True
    """Whether more ranks may be faster."""
    tunes_training: ClassVar[bool] = False
    """Whether the fields of `TrainingConfig` mean what they mean there, so that advice may name them."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def fits(self, rows: Sequence[Row]) -> bool:
        """Whether the recorded configurations have what this presentation needs: a folder may come from anybody."""
        return True

    def add_speed_up(self, rows: Sequence[Row], fixed_batch_field: str) -> None:
        """Fill in the speed-up of rows over their baseline: world size 1 at the same fixed batch, all else equal."""
        free = {"world_size", "machines", "ranks_per_machine", "batch_per_rank", "global_batch"} - {fixed_batch_field}

        def rest(row: Row, *besides: str) -> str:
            return repr([value for name, value in row.factors.items() if name not in free and name not in besides])

        single = [row for row in reversed(rows) if row.world_size == 1]
        bases = {rest(row): row for row in single}
        # World size 1 has no backend, so it is the baseline for every backend.
        bases_without_backend = {rest(row, "backend"): row for row in single if not row.factors.get("backend")}
        for row in rows:
            base = bases.get(rest(row)) or bases_without_backend.get(rest(row, "backend"))
            if base is not None and row.world_size > 1:
                row.speed_up = row.speed_against(base)

    def order(self, rows: list[Row], names: Sequence[str]) -> None:
        """Sort the rows in place, which are in the order of their factors."""

    def columns(self, table: Table) -> list[Column]:
        """The columns of a table."""
        return default_columns(table)

    def notes(self, rows: Sequence[Row]) -> list[Note]:
        """The notes that a table has besides those of every workload."""
        return []

    def measures(self, rows: Sequence[Row]) -> list[Measure]:
        """By what an answer compares these trials, the most important first."""
        return measures_of(rows)

    def judged(self, rows: Sequence[Row]) -> list[str]:
        """All that an answer may have a verdict on: `measures`, what it compares within runs, and memory.

        They share the errors of the answer. Memory that is the same in every repeat makes none.
        """
        memory = memory_metric(rows)
        return [*(measure.name for measure in self.measures(rows)), *([memory] if memory not in ("", *EXACT) else [])]

    def claims_within_trials(self, table: Table) -> list[Claim]:
        """The comparisons that the answer makes of two values of the same runs, besides those of trials."""
        return []

    def answer(self, table: Table, axis: str) -> Answer:
        """What an axis does."""
        return answer_along(table, axis)

    def can_run(self, row: Row, axis: str, value: Any) -> bool:
        """Whether the trial of a row can be run with another value of an axis."""
        return True

    def scope(self, factors: Sequence[Mapping[str, Any]]) -> str:
        """What the results say nothing of: `another model than ...`."""
        return f"another workload than {self.workload.name}"

    def match(self, record: RunRecord) -> Match | None:
        """The published run of the same configuration; None if there is none."""
        return None

    def published(self, layout: str) -> Results | None:
        """The published runs of one of its layouts."""
        return None


class AbsentPresentation(Presentation):
    """The defaults, for results of a workload that is not installed here."""

    def notes(self, rows: Sequence[Row]) -> list[Note]:
        name = self.workload.name
        return [Note("method", f"The workload {name} is not installed here: install its package to have its columns.")]


def presentation_of(workload: Workload) -> Presentation:
    """Return the presentation of a workload.

    Raises:
        ConfigError: it cannot be loaded.
    """
    where = f"workload {workload.name}: its presentation {workload.presentation}"
    try:
        presentation = pkgutil.resolve_name(workload.presentation)(workload)
    except Exception as error:
        raise ConfigError(f"{where} cannot be loaded ({type(error).__name__}: {error}); correct it.") from error
    if not isinstance(presentation, Presentation):
        raise ConfigError(f"{where} does not extend dmls_ray.analysis.presentation.Presentation; let it.")
    return presentation


def presentation_of_rows(rows: Sequence[Row]) -> Presentation:
    """Return the presentation of a table: that of the rows' workload, if their configurations fit it.

    Rows of several workloads share the default.
    """
    workloads = {row.workload.name: row.workload for row in rows} or {DEFAULT: workload(DEFAULT)}
    presentations = [presentation_of(item) for item in workloads.values()]
    kinds = {type(item) for item in presentations}
    if len(kinds) == 1 and presentations[0].fits(rows):
        return presentations[0]
    return Presentation(presentations[0].workload)


def installed_presentations() -> Iterator[Presentation]:
    """Yield the presentation of every workload in the registry; one that cannot be loaded gives a warning."""
    for item in usable_workloads():
        try:
            yield presentation_of(item())
        except ConfigError as error:
            warn(str(error))
