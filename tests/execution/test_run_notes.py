"""What runs leave behind in their processes, and values that are not recorded, are noted once."""

from __future__ import annotations

from dmls_ray.execution.run_notes import RunNotes
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult


def run(run_id: str, not_recorded: str = "") -> RunRecord:
    return RunRecord(
        run_id=run_id, trial_id="a", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK,
        not_recorded=not_recorded,
    )  # fmt: skip


def test_each_combination_of_what_runs_leave_behind_is_noted_once() -> None:
    notes = RunNotes()
    thread = [RankResult(rank=rank, left_behind=("a thread (feeder)",)) for rank in (0, 1)]
    two = [RankResult(rank=0, left_behind=("inference mode", "a profiler"))]
    assert [*notes.of(run("a-0"), [RankResult(rank=0)], shares_process=True)] == []
    assert [*notes.of(run("a-0"), thread, shares_process=False)] == []
    (note,) = notes.of(run("a-1"), thread, shares_process=True)
    assert note.startswith("Run a-1 left behind")
    assert "in its process: a thread (feeder). Its worker processes are replaced" in note
    assert [*notes.of(run("a-2"), thread, shares_process=True)] == []
    (note,) = notes.of(run("a-3"), two, shares_process=True)
    assert "inference mode, a profiler" in note


def test_equal_values_that_are_not_recorded_are_noted_once() -> None:
    notes = RunNotes()
    texts = ["end is of type datetime; give .isoformat()"] * 2 + ["", "places is of type set; give sorted() of it"]
    runs = [run(f"a-{number}", text) for number, text in enumerate(texts)]
    noted = [[*notes.of(record, [], shares_process=False)] for record in runs]
    assert noted == [[f"Run a-0: not recorded: {texts[0]}."], [], [], [f"Run a-3: not recorded: {texts[3]}."]]
