"""`LaneQueues`: the runs that wait, and which lane measures which block.

Values are compared within a block, so all runs of a block go to one lane. What the machines of a lane have in common
then cancels in every comparison.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping

from dmls_ray.cluster.messages import Job
from dmls_ray.cluster.scheduler.membership import Lane
from dmls_ray.cluster.scheduler.retry import Queued


class LaneQueues:
    """The runs that wait: on each lane those of its block, and the blocks that no lane has begun.

    Args:
        lanes: the lanes by number, which come and go.
    """

    def __init__(self, lanes: Mapping[int, Lane]) -> None:
        self._lanes = lanes
        self._lane_of: dict[int, int] = {}
        """Block -> number of the lane that measures it."""
        self._of_lane: dict[int, deque[Queued]] = {}
        self._of_block: dict[int, deque[Queued]] = {}
        """Blocks that no lane has begun, in the order in which they were submitted."""

    def add(self, queued: Queued) -> None:
        """Add a run: to the queue of its block's lane, or to those of a block that waits for a lane."""
        self._queue_of(queued.job.block).append(queued)

    def put_back(self, queued: Queued) -> None:
        """Add a run that is run again: before all others of its block, which is being measured."""
        self._queue_of(queued.job.block).appendleft(queued)

    def _queue_of(self, block: int) -> deque[Queued]:
        if block in self._lane_of:
            return self._of_lane[self._lane_of[block]]
        return self._of_block.setdefault(block, deque())

    def give_blocks(self) -> list[Lane]:
        """Give each block that waits to a lane without one; returns these lanes."""
        given = []
        for block in list(self._of_block):
            lane = self._lane_for(self._of_block[block][0].job)
            if lane is None:
                continue
            self._lane_of[block] = lane.number
            self._of_lane[lane.number] = self._of_block.pop(block)
            given.append(lane)
        return given

    def _lane_for(self, job: Job) -> Lane | None:
        """A lane without a block for that of a run: the one that it asks for, or where its block was; None without."""
        usable = {lane.number: lane for lane in self._usable_lanes()}
        free = [lane for number, lane in usable.items() if number not in self._of_lane]
        if job.lane in usable:  # else it has lost its machine, and any other will do
            free = [lane for lane in free if lane.number == job.lane]
        near = [lane for lane in free if lane.slots[job.near]]
        return next(itertools.chain(near, free), None)

    def _usable_lanes(self) -> list[Lane]:
        """The lanes that can serve every run. Without any, runs wait on the first for machines that come back."""
        whole = [lane for lane in self._lanes.values() if lane.is_whole]
        return whole or list(self._lanes.values())[:1]

    def leave_broken_lanes(self) -> None:
        """Take its block from each lane that lacks ranks for some runs, for another lane."""
        usable = {lane.number for lane in self._usable_lanes()}
        for block, number in list(self._lane_of.items()):
            if number not in usable:
                waiting = self._of_lane.pop(number)
                del self._lane_of[block]
                if waiting:
                    self._of_block = {block: waiting, **self._of_block}

    def end_block(self, block: int) -> None:
        """Free the lane of a block whose runs have all ended."""
        number = self._lane_of.pop(block, None)
        if number is not None:
            del self._of_lane[number]

    def of(self, lane: Lane) -> deque[Queued]:
        """The runs that wait on a lane, in the order in which they start."""
        return self._of_lane.get(lane.number, deque())

    def remove_retry(self, run_id: str) -> Queued | None:
        """Remove a run that was to be run again; None if it is not among those."""
        for queue in (*self._of_lane.values(), *self._of_block.values()):
            # Retries are at the front; behind them may be thousands of runs.
            for queued in itertools.takewhile(lambda queued: queued.earlier, queue):
                if queued.job.run_id == run_id:
                    queue.remove(queued)
                    return queued
        return None

    def clear(self) -> None:
        """Drop all runs."""
        self._lane_of.clear()
        self._of_lane.clear()
        self._of_block.clear()

    def __iter__(self) -> Iterator[Queued]:
        return itertools.chain(*self._of_lane.values(), *self._of_block.values())

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None
