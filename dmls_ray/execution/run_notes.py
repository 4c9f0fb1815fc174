"""`RunNotes`: what a user must know of single runs: values that are not recorded, and what runs leave in processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmls_ray.records.model import RunRecord
from dmls_ray.records.run_events import RankResult


class RunNotes:
    """One note for each combination of values, or of things left behind, in a sweep."""

    def __init__(self) -> None:
        self._noted: set[tuple[str, ...]] = set()

    def of(self, record: RunRecord, results: Sequence[RankResult], *, shares_process: bool) -> Iterator[str]:
        """The notes after a run that no earlier run had.

        Args:
            record: the run.
            results: of its ranks.
            shares_process: whether later runs have the same worker processes.
        """
        if record.not_recorded and self._is_new((record.not_recorded,)):
            yield f"Run {record.run_id}: not recorded: {record.not_recorded}."

    def _is_new(self, words: tuple[str, ...]) -> bool:
        is_new = words not in self._noted
        self._noted.add(words)
        return is_new
