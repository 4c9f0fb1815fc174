"""`Turns`: which run comes next, so that each lane measures one block after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dmls_ray.cluster.messages import Job
from dmls_ray.config.grid import Run
from dmls_ray.execution.jobs import runs_at_once

if TYPE_CHECKING:
    from dmls_ray.cluster.worker_group import WorkerGroup


Following = Callable[[frozenset[int]], Sequence[Run]]
"""Returns the runs that come after those that were handed out, given the blocks that are under way. Nothing under way
and no run: these were all."""


def turns_on(
    group: WorkerGroup, first: Sequence[Run], following: Following, jobs: Sequence[Job], *, is_timed: bool
) -> Turns:
    """The order of the runs on these ranks: a block on each lane, or as many runs as there are ranks for."""
    if is_timed:
        return Turns(first, following, at_once=lambda: group.lanes, end_block=group.end_block)
    at_once = runs_at_once(jobs, group.ranks)
    return Turns(first, following, at_once=lambda: at_once, shares_lanes=True)


class Turns(Iterator[str | None]):
    """Hands out the runs of a sweep: of each block one at a time, where runs are timed.

    Args:
        first: the runs that come first.
        following: returns the runs that come after these.
        at_once: how many blocks there may be at once, the number of lanes; or runs, where they share lanes.
        end_block: told of each block whose runs have all ended on one lane.
        shares_lanes: whether runs are not timed, so that those of one block may go at the same time.
    """

    def __init__(
        self,
        first: Sequence[Run],
        following: Following,
        *,
        at_once: Callable[[], int],
        end_block: Callable[[int], None] = lambda block: None,
        shares_lanes: bool = False,
    ) -> None:
        self._following, self._at_once = following, at_once
        self._end_block, self._shares_lanes = end_block, shares_lanes
        self._waiting: dict[int, deque[Run]] = {}
        """Block -> its runs that wait, the oldest block first."""
        self._under_way: dict[str, Run] = {}
        """By run_id."""
        self._ended: dict[int, dict[str, tuple[Run, int]]] = {}
        """Block that is under way -> run_id -> the run and the number of the lane on which it ended."""
        self._asked_at: frozenset[int] | None = None
        """Blocks that were under way when `following` last returned nothing, and would again."""
        self._add(first)

    def __next__(self) -> str | None:
        """The run_id of the next run; None while one must end first."""
        run = self._take()
        open_blocks = self._busy
        if run is None and not self._waiting and self._has_free_lane and open_blocks != self._asked_at:
            following = self._following(open_blocks)
            self._asked_at = None if following else open_blocks
            self._add(following)
            run = self._take()
        if run is not None:
            self._under_way[run.run_id] = run
            return run.run_id
        if not self._under_way:
            raise StopIteration
        return None

    @property
    def _busy(self) -> frozenset[int]:
        """The blocks of which a run is under way."""
        return frozenset(run.repeat for run in self._under_way.values())

    @property
    def _has_free_lane(self) -> bool:
        """Whether another block, or of runs that share lanes another run, may begin now."""
        begun = self._under_way.keys() if self._shares_lanes else self._busy | self._ended.keys()
        return len(begun) < self._at_once()

    def _add(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._waiting.setdefault(run.repeat, deque()).append(run)

    def _take(self) -> Run | None:
        """The next run of the oldest block that may go on or begin."""
        busy, has_free_lane = self._busy, self._has_free_lane
        for block, runs in self._waiting.items():
            # A block that has begun goes on, whatever has become of other lanes: it may have the only one.
            goes_on = not self._shares_lanes and block in self._ended
            waits = not self._shares_lanes and block in busy
            if (goes_on or has_free_lane) and not waits:
                run = runs.popleft()
                if not runs:
                    del self._waiting[block]
                return run
        return None

    def ended(self, run: Run, lane: int) -> list[Run]:
        """Note that a run has ended on a lane, 0 for none; returns the runs that are run again.

        Values are compared within a block, so all of a block must come from one lane. The last lane on which a run of
        it ended measures those that ended elsewhere.
        """
        self._under_way.pop(run.run_id, None)
        block = run.repeat
        ended = self._ended.setdefault(block, {})
        if lane:
            ended.pop(run.run_id, None)
            ended[run.run_id] = (run, lane)
        if self._shares_lanes or block in self._waiting or block in self._busy:
            return []
        *_, last = [lane, *(of_lane for _, of_lane in ended.values())]
        elsewhere = [other for other, of_lane in ended.values() if of_lane != last]
        if elsewhere:
            self._waiting = {block: deque(elsewhere), **self._waiting}
        else:
            del self._ended[block]
            self._end_block(block)
        return elsewhere
