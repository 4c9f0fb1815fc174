"""Which run comes next, on one lane and on several."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from itertools import count

import pytest

from dmls_ray.config.grid import Run
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.turns import Turns

PLAN = make_plan({"batch_per_rank": [16, 32, 64]}, repeats=4)


class Lanes:
    """Runs what the turns say, on lanes that each take blocks as the broker gives them."""

    def __init__(self, lanes: int, first: Sequence[Run] = PLAN.runs, **options: bool) -> None:
        self.by_id = {run.run_id: run for run in PLAN.runs}
        self.lanes = lanes
        self.following: list[Sequence[Run]] = []
        self.asked: list[set[int]] = []
        self.lane_of: dict[int, int] = {}
        self.ended_blocks: list[int] = []
        self.turns = Turns(first, self._follow, at_once=lambda: self.lanes, end_block=self._end_block, **options)

    def _follow(self, open_blocks: Collection[int]) -> Sequence[Run]:
        self.asked.append(set(open_blocks))
        return self.following.pop(0) if self.following else ()

    def _end_block(self, block: int) -> None:
        self.ended_blocks.append(block)
        del self.lane_of[block]

    def start(self) -> list[Run]:
        """All runs that can start now."""
        started = []
        while (run_id := next(self.turns)) is not None:
            run = self.by_id[run_id]
            free = (number for number in count(1) if number not in self.lane_of.values())
            self.lane_of.setdefault(run.repeat, next(free))
            started.append(run)
        return started

    def end(self, run: Run, lane: int | None = None) -> list[Run]:
        return self.turns.ended(run, lane or self.lane_of[run.repeat])


def test_one_lane_runs_the_plan_in_its_order() -> None:
    turns = Lanes(1)
    for expected in PLAN.runs:
        assert turns.start() == [expected]
        assert turns.end(expected) == []
    with pytest.raises(StopIteration):
        turns.start()
    assert turns.ended_blocks == [0, 1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"shares_lanes": True}])
def test_after_each_round_of_blocks_another_may_follow(options: dict[str, bool]) -> None:
    by_block = [[run for run in PLAN.runs if run.repeat == block] for block in range(4)]
    turns = Lanes(1, by_block[0], **options)
    turns.following = by_block[1:]
    for expected in itertools.chain(*by_block):
        (run,) = turns.start()
        assert run == expected
        turns.end(run)
    with pytest.raises(StopIteration):
        turns.start()
    assert turns.asked == [set()] * 4


def test_each_lane_runs_a_block_one_run_at_a_time() -> None:
    turns = Lanes(3)
    first = turns.start()
    assert [run.repeat for run in first] == [0, 1, 2]
    turns.end(first[1])
    (second,) = turns.start()
    assert second.repeat == 1
    turns.end(second)
    (third,) = turns.start()
    turns.end(third)
    assert turns.ended_blocks == [1]
    (next_block,) = turns.start()
    assert next_block.repeat == 3


def test_a_lane_that_joins_gets_the_next_block() -> None:
    turns = Lanes(1)
    turns.start()
    turns.lanes = 2
    (other,) = turns.start()
    assert other.repeat == 1


def test_blocks_that_have_begun_go_on_with_fewer_lanes_and_no_other_begins() -> None:
    # The run of a lost lane waits until the only lane that is left has ended its block.
    turns = Lanes(2)
    first, _ = turns.start()
    turns.lanes = 1
    for _ in range(2):
        turns.end(first)
        (first,) = turns.start()
        assert first.repeat == 0
    turns.end(first)
    assert turns.ended_blocks == [0]
    assert turns.start() == []


def test_runs_of_a_block_that_ended_on_another_lane_are_run_again() -> None:
    turns = Lanes(1)
    (first,) = turns.start()
    turns.end(first, 1)
    (second,) = turns.start()
    turns.end(second, 2)
    (third,) = turns.start()
    assert turns.end(third, 2) == [first]
    assert turns.ended_blocks == []
    (again,) = turns.start()
    assert again == first
    assert turns.end(again, 2) == []
    assert turns.ended_blocks == [0]


def test_a_run_that_was_skipped_moves_no_block() -> None:
    turns = Lanes(2)
    (first, _) = turns.start()
    turns.end(first, 2)
    (second,) = turns.start()
    turns.turns.ended(second, 0)
    (third,) = turns.start()
    assert turns.end(third, 2) == []
    assert turns.ended_blocks == [0]
    (fourth,) = turns.start()
    assert turns.turns.ended(fourth, 0) == []


def test_a_busy_lane_asks_for_nothing_that_follows() -> None:
    turns = Lanes(1, PLAN.runs[:1])
    turns.following = [PLAN.runs[3:6]]
    (run,) = turns.start()
    assert turns.start() == []
    assert turns.asked == []
    turns.end(run)
    assert [run.repeat for run in turns.start()] == [1]


def test_a_lane_with_nothing_to_do_asks_once_for_what_follows_until_another_block_ends() -> None:
    turns = Lanes(2, PLAN.runs[:3])
    turns.following = [(), PLAN.runs[3:6]]
    (run,) = turns.start()
    assert turns.start() == []
    assert turns.asked == [], "its block has runs left"
    turns.end(run)
    (run,) = turns.start()
    turns.end(run)
    (run,) = turns.start()
    assert turns.start() == turns.start() == []
    assert turns.asked == [{0}]
    turns.end(run)
    (ahead,) = turns.start()
    assert (ahead.repeat, turns.asked) == (1, [{0}, set()])


def test_runs_that_are_not_timed_fill_every_lane_in_the_order_of_blocks() -> None:
    turns = Lanes(5, shares_lanes=True)
    assert turns.start() == list(PLAN.runs[:5])
    assert turns.end(PLAN.runs[1]) == []
    assert turns.start() == [PLAN.runs[5]]
