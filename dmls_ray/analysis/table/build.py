"""The table a person would have drawn: a row a trial, and only the columns that vary or answer."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.findings.sweep_trials import sweep_trials
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.columns import columns_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.notes import notes_of
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.util.gc import gc_disabled


@gc_disabled()
def make_table(
    results: Results, varied: Sequence[str] | None = None, *, best_by: tuple[str, bool] | None = None
) -> Table:
    """The table of a sweep, or of a search.

    Args:
        results: the runs.
        varied: fields to show as columns; without it, those in which the runs differ.
        best_by: a metric, and whether it is to be small, for the best trial first, and those that were stopped after
            those that trained to the end; without it, by the factors.
    """
    trials = sweep_trials(results, varied, best_by=best_by)
    presentation = Presentation.of_trials(trials.rows)
    if not presentation.fits(trials.rows):
        presentation = Presentation(presentation.workload)
    presentation.add_speed_up(trials.rows, trials.fixed_batch_field)
    if best_by is None:
        presentation.order(trials.rows, trials.varied)
    table = Table(**vars(trials), presentation=presentation)
    table.typed_notes = list(notes_of(results, table))
    table.columns = columns_of(table)
    return table
