"""`LeftBehindNotes`: notes about what runs leave in their processes and cannot be undone."""

from __future__ import annotations

from collections.abc import Iterable

from dmls_ray.records.run_events import RankResult


class LeftBehindNotes:
    """One note for each combination of things that runs of a sweep leave behind."""

    def __init__(self) -> None:
        self._noted: set[tuple[str, ...]] = set()

    def note(self, run_id: str, results: Iterable[RankResult]) -> str:
        """The note after a run with these results; empty if there is nothing new to say."""
        names = tuple(dict.fromkeys(name for result in results for name in result.left_behind))
        if not names or names in self._noted:
            return ""
        self._noted.add(names)
        return (
            f"Run {run_id} left behind what cannot be undone in its process: {', '.join(names)}. Its worker processes "
            "are replaced before the next run, which takes seconds after each run that leaves the same; end or undo it "
            "in the training function."
        )
