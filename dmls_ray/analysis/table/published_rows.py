"""The published runs of a table's configurations as further rows of it."""

from __future__ import annotations

from dataclasses import replace

from dmls_ray.analysis.published.data import CAVEATS
from dmls_ray.analysis.table.columns import columns_of
from dmls_ray.analysis.table.model import Note, Table
from dmls_ray.analysis.trials.trial import Trial

_DIFFERS = "differs in: ours / theirs; what the reports do not give is compared where ours is not at its default."
_NO_RUN = "The reports have no run of these configurations."


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
