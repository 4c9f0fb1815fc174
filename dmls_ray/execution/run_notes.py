"""`RunNotes`: notes about values of runs that are not recorded."""

from __future__ import annotations

from collections.abc import Iterator

from dmls_ray.records.model import RunRecord


class RunNotes:
    """One note for each kind of value in a sweep."""

    def __init__(self) -> None:
        self._noted = {""}

    def of(self, record: RunRecord) -> Iterator[str]:
        """The note after a run; none that an earlier run had."""
        if record.not_recorded not in self._noted:
            self._noted.add(record.not_recorded)
            yield f"Run {record.run_id}: not recorded: {record.not_recorded}."
