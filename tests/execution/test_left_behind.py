"""What runs leave behind in their processes is noted once."""

from __future__ import annotations

from dmls_ray.execution.left_behind import LeftBehindNotes
from dmls_ray.records.run_events import RankResult


def test_each_combination_of_what_runs_leave_behind_is_noted_once() -> None:
    notes = LeftBehindNotes()
    thread = [RankResult(rank=rank, left_behind=("a thread (feeder)",)) for rank in (0, 1)]
    assert notes.note("a-0", [RankResult(rank=0)]) == ""
    assert notes.note("a-1", thread) == (
        "Run a-1 left behind what cannot be undone in its process: a thread (feeder). Its worker processes are "
        "replaced before the next run, which takes seconds after each run that leaves the same; end or undo it in the "
        "training function."
    )
    assert notes.note("a-2", thread) == ""
    assert "inference mode, a profiler" in notes.note(
        "a-3", [RankResult(rank=0, left_behind=("inference mode", "a profiler"))]
    )
