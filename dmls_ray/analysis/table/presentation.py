"""`Presentation`: what a workload adds to tables and figures.

The defaults serve any workload. A workload names its subclass in `Workload.presentation`; the subclass stands in
`analysis/workloads/<name>.py`, since it needs pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from dmls_ray.analysis.findings.sweep_trials import Hooks
from dmls_ray.analysis.table.layout import Layout
from dmls_ray.analysis.table.model import Column, Note, Table, default_columns
from dmls_ray.analysis.table.seen import notes_on_steps
from dmls_ray.analysis.trials.axis import BATCHES, RANKS, groups_with_each_backend
from dmls_ray.analysis.trials.common_metrics import speed_against
from dmls_ray.analysis.trials.trial import Trial

if TYPE_CHECKING:
    from dmls_ray.analysis.figures.chart import Chart


class Presentation(Hooks):
    """How the results of a workload are read."""

    named_in = "presentation"

    figures: ClassVar[Mapping[str, Callable[[Table], Chart | None]]] = {}
    """Figures besides those of every workload, by name; they come first."""
    layouts: ClassVar[Mapping[str, Layout]] = {}
    """Tables of `--by` besides those of training, by name."""
    loss_unit: ClassVar[str] = "as the training function reports it"
    """Unit of a loss on the axis of a figure."""
    always_named: ClassVar[tuple[str, ...]] = ()
    """Fields that are named below a table where they do not vary; without any, all of a workload's own."""

    samples_by: ClassVar[str] = "rank.count(samples=...) in the function says them"
    """What tells the samples of a step where they are not known."""
    seeds_by: ClassVar[str] = "If the function sets a seed itself, let it use the seed of the run (config['seed'])"
    """What gives each repeat a seed of its own."""

    tests_by: ClassVar[str] = "a test that reads a DataLoader of its own is seen as one"
    """What tells whether a time was a test of the model."""

    def add_speed_up(self, rows: Sequence[Trial], fixed_batch_field: str) -> None:
        """Fill in the speed-up of rows over their baseline: world size 1 at the same fixed batch, all else equal.

        Ranks that trained apart have none.
        """
        free = {*RANKS, *BATCHES} - {fixed_batch_field}
        together = [row for row in rows if not row.independent_ranks]
        for group in groups_with_each_backend(together, free):
            base = next((row for row in group if row.world_size == 1), None)
            for row in group:
                if base is not None and row.world_size > 1:
                    row.speed_up = speed_against(row, base)

    def order(self, rows: list[Trial], names: Sequence[str]) -> None:
        """Sort the rows in place, which are in the order of their factors."""

    def columns(self, table: Table) -> list[Column]:
        """The columns of a table."""
        return default_columns(table)

    def notes(self, rows: Sequence[Trial]) -> list[Note]:
        """The notes that a table has besides those of every workload: what was seen of code of users."""
        return list(notes_on_steps(rows, self.samples_by, self.tests_by))
