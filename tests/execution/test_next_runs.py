"""Which runs of a plan are done, which have to be run again, and which come next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.config.options import Options
from dmls_ray.execution.next_runs import NextRuns, finished_run_ids
from dmls_ray.execution.planning import make_plan
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import results
from tests.records.test_model import record

PLAN = make_plan({"world_size": 1, "batch_per_rank": 16}, repeats=4)


def of_run(number: int, **changes: object) -> RunRecord:
    return record(run_id=PLAN.runs[number].run_id, repeat=number, **changes)


def finished(records: list[RunRecord], **options: object) -> set[int]:
    ids = finished_run_ids(PLAN, records, Options(**options))  # type: ignore[arg-type]
    return {number for number, run in enumerate(PLAN.runs) if run.run_id in ids}


def test_a_run_that_was_skipped_or_killed_is_not_done() -> None:
    records = [of_run(0), of_run(1, outcome=Outcome.SKIPPED), of_run(2, outcome=Outcome.KILLED)]
    assert finished(records) == {0}


def test_what_a_search_has_run_is_not_measured_and_what_it_has_stopped_is_not_whole() -> None:
    records = [of_run(0), of_run(1, mode="search"), of_run(2, mode="search", metrics={"stopped_epoch": 1})]
    assert finished(records) == {0}
    assert finished(records, search=True) == {0, 1, 2}
    assert finished(records, search=True, scheduler="none") == {0, 1}


def test_a_block_is_run_again_as_a_whole_where_that_is_asked() -> None:
    plan = make_plan({"batch_per_rank": [16, 17]}, repeats=6)
    records = results({"batch_per_rank": [16, 17]}, lambda values, repeat: 100.0, repeats=6).records
    for made in records:
        made.session = "now"
    by_repeat = {repeat: [made for made in records if made.repeat == repeat] for repeat in range(6)}
    by_repeat[1][0].session = "minutes ago"
    by_repeat[2][1].outcome = Outcome.KILLED
    by_repeat[3][1].outcome = Outcome.SKIPPED
    records.remove(by_repeat[4][0])

    def finished_of(**options: bool) -> dict[int, int]:
        ids = finished_run_ids(plan, records, Options(repeats=6, **options))
        counts = {repeat: sum(made.run_id in ids for made in found) for repeat, found in by_repeat.items()}
        return {repeat: count for repeat, count in counts.items() if count}

    assert finished_of() == {0: 2, 1: 2, 2: 1, 3: 1, 4: 1, 5: 2}
    assert finished_of(whole_blocks=True) == {0: 2, 3: 1, 5: 2}


def test_whole_blocks_of_one_session_come_next_and_nothing_else() -> None:
    """One trial has ten repeats of an earlier call, and the other none."""
    ended = [run.run_id for run in BLOCKS.runs if run.values["batch_per_rank"] == 16 and run.repeat < 10]
    options = Options(max_repeats=MOST, budget=None, whole_blocks=True)
    assert Folder(noisy, options, ended).next() == [0, 0, 1, 1, 2, 2]
    assert Folder(noisy, ended=ended).next() == [0, 1, 2]


AXES = {"batch_per_rank": [16, 17]}
MOST = 12
UNTIL = Options(max_repeats=MOST, budget=None)
BLOCKS = make_plan(AXES, repeats=MOST)


def noisy(values: dict[str, Any], repeat: int) -> float:
    return 1000.0 * (1 + 0.2 * ((repeat * values["batch_per_rank"]) % 3))


class Folder:
    """A results folder: records of what was handed out."""

    def __init__(self, rate: Any, options: Options = UNTIL, ended: Collection[str] = (), killed: str = "") -> None:
        self.all = {record.run_id: record for record in results(AXES, rate, repeats=MOST).records}
        if killed:
            self.all[killed].outcome = Outcome.KILLED
        self.ended: dict[str, Any] = {run_id: self.all[run_id] for run_id in ended}
        self.options = options
        self.state = NextRuns(BLOCKS, options, list(self.ended.values()), self.results)
        self.runs = self.state.missing

    def results(self) -> Results:
        found = Results("somewhere", list(self.ended.values()))
        found.until = self.options.until
        return found

    def next(self) -> list[int]:
        """Run what comes next; returns the repeats of the runs."""
        self.ended |= {run.run_id: self.all[run.run_id] for run in self.runs}
        repeats = [run.repeat for run in self.runs]
        self.reason = self.state.reason
        self.runs = self.state.next()
        return repeats


def test_all_runs_come_at_once_where_their_number_was_given() -> None:
    folder = Folder(noisy, Options(repeats=MOST))
    assert folder.next() == [repeat for repeat in range(MOST) for _ in AXES["batch_per_rank"]]
    assert folder.next() == []
    assert folder.reason == ""


def test_whole_blocks_are_added_until_no_comparison_is_open_or_no_more_are_allowed() -> None:
    folder = Folder(noisy)
    assert folder.next() == [0, 0, 1, 1, 2, 2]
    assert folder.reason == ""
    assert folder.next() == [3, 3, 4, 4]
    assert folder.reason.startswith("After 3 repeats, still open: 1 of 2 comparisons")
    assert folder.next() == [5, 5, 6, 6, 7, 7]
    assert folder.next() == [8, 8, 9, 9, 10, 10, 11, 11]
    assert folder.next() == []
    assert "1 of 2 comparisons after 12 repeats" in folder.reason
    assert "would decide 1 of them: --max-repeats " in folder.reason


def test_three_blocks_are_enough_for_what_is_far_apart() -> None:
    folder = Folder(lambda values, repeat: 3000.0 if values["batch_per_rank"] == 16 else 100.0 + repeat)
    assert folder.next() == [0, 0, 1, 1, 2, 2]
    assert folder.next() == []


def test_a_sweep_that_was_cut_short_goes_on_where_it_was() -> None:
    finished = [run.run_id for run in BLOCKS.runs if run.repeat < 4][:-1]
    folder = Folder(noisy, ended=finished)
    assert folder.next() == [3, 4, 4]
    finished = [run.run_id for run in BLOCKS.runs][:1]
    assert Folder(noisy, ended=finished).next() == [0, 1, 1, 2, 2]


def test_a_sweep_that_has_ended_runs_nothing_and_a_narrower_interval_extends_it() -> None:
    finished = [run.run_id for run in BLOCKS.runs]
    assert Folder(noisy, ended=finished).next() == []
    finished = finished[:10]
    assert Folder(noisy, Options(max_repeats=5), finished).next() == []
    assert Folder(noisy, Options(max_repeats=6), finished).next() == [5, 5]
    assert Folder(noisy, Options(within=0.9), finished).next() == []


def test_a_run_that_ended_without_an_answer_comes_first_in_the_next_call() -> None:
    ended = [run.run_id for run in BLOCKS.runs if run.repeat < 5]
    folder = Folder(noisy, ended=ended, killed=ended[-1])
    assert [run.run_id for run in folder.runs] == ended[-1:]


def test_a_lane_with_nothing_to_do_gets_a_block_ahead_which_counts_at_the_next_look() -> None:
    folder = Folder(noisy)
    first = {run.repeat for run in folder.runs}
    assert first == {0, 1, 2}
    ahead = [folder.state.next({0, 1, 2}), folder.state.next({1, 2, 3})]
    assert [{run.repeat for run in runs} for runs in ahead] == [{3}, {4}]
    # Blocks 0 to 2 have ended; 3 and 4 are under way, and are those of the next look.
    folder.ended |= {run.run_id: folder.all[run.run_id] for run in BLOCKS.runs if run.repeat < 3}
    assert folder.state.next({3, 4}) == ()
    assert folder.state.reason.startswith("After 3 repeats, still open")
    folder.ended |= {run.run_id: folder.all[run.run_id] for run in BLOCKS.runs if run.repeat < 5}
    assert {run.repeat for run in folder.state.next()} == {5, 6, 7}


def test_no_block_is_begun_once_all_is_decided_and_those_under_way_are_looked_at() -> None:
    folder = Folder(lambda values, repeat: 3000.0 if values["batch_per_rank"] == 16 else 100.0 + repeat)
    folder.state.next({0, 1, 2})
    folder.ended |= {run.run_id: folder.all[run.run_id] for run in BLOCKS.runs if run.repeat < 3}
    assert folder.state.next({3}) == ()
    assert folder.state.next({3, 4}) == ()
    folder.ended |= {run.run_id: folder.all[run.run_id] for run in BLOCKS.runs if run.repeat < 4}
    assert folder.state.next() == ()
    assert "4 repeats" in folder.state.reason
