"""The table a person would have drawn: a row a trial, and only the columns that vary or answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.findings.sweep_trials import sweep_trials
from dmls_ray.analysis.published.reports import CAVEATS
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.columns import columns_of
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.analysis.table.notes import notes_of
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.util.gc import gc_disabled

_DIFFERS = "differs in: ours / theirs; what the reports do not give is compared where ours is not at its default."
_NO_RUN = "The reports have no run of these configurations."


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
    presentation.add_speed_up(trials.rows, trials.fixed_batch_field)
    if best_by is None:
        presentation.order(trials.rows, trials.varied)
    table = Table(**vars(trials), presentation=presentation)
    table.typed_notes = list(notes_of(results, table))
    table.columns = columns_of(table)
    return table


def with_published(table: Table) -> Table:
    """The table with the published run of each configuration in a row below ours."""
    rows = []
    theirs = []
    for row in table.rows:
        rows.append(row)
        match = table.presentation.match(row.records[0])
        if match is not None:
            facts = {"published_on": match.hardware, "differs_in": match.differs_in}
            published = Trial(match.record.trial_id, row.factors, [match.record.replace(facts=facts)])
            rows.append(published)
            theirs.append(published)
    notes = [_NO_RUN]
    if theirs:
        names = {name for row in theirs for name in row.estimates}
        notes = [*(text for name, text in CAVEATS.items() if name in names), _DIFFERS]
    joined = replace(table, rows=rows, typed_notes=[*table.typed_notes, *(Note("method", text) for text in notes)])
    joined.columns = columns_of(joined)
    return joined
