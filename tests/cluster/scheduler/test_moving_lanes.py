"""Sweeps on lanes whose machines leave and come back: all of a block ends on one lane, and nothing is lost."""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest

from dmls_ray.cluster.messages import ExpectedTrainer, Lease
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.grid import Run
from dmls_ray.config.options import RunLimits
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.turns import Turns
from tests.cluster.scheduler.ranks import card, job, lane_of, result, run_virtually

PLAN = make_plan({"batch_per_rank": [1, 2, 3]}, repeats=8)
RUNS = {run.run_id: run for run in PLAN.runs}
RESTLESS_S = 60.0
"""Virtual seconds in which machines leave and come back."""


class Machines:
    """Machines of one rank, each a lane, that leave and come back."""

    def __init__(self, count: int, chance: random.Random) -> None:
        self.chance = chance
        self.there: dict[int, asyncio.Task[None]] = {}
        """Lane -> its rank."""
        self.starts = dict.fromkeys(range(1, count + 1), 0)
        """Lane -> how often its machine came back."""
        expected = {
            f"t{lane}.0": ExpectedTrainer(ranks=1, machine=f"m{lane}", lane=lane, is_optional=lane > 1)
            for lane in self.starts
        }
        self.broker = Broker(expected, limits=RunLimits(wait_for_ranks=1000))
        for lane in self.starts:
            self.there[lane] = asyncio.ensure_future(self._serve(lane))

    async def _serve(self, lane: int) -> None:
        await asyncio.sleep(self.chance.uniform(0, 3))
        start = self.starts[lane]
        name = await self.broker.join(card(0, f"m{lane}", trainer=f"t{lane}.{start}", group=start))
        while isinstance(lease := await self.broker.next_lease(name), Lease):
            await self.broker.begun(name, lease.lease_id, 0)
            await asyncio.sleep(self.chance.uniform(0.1, 1))
            await self.broker.finish(name, lease.lease_id, result())

    async def leave(self, lane: int) -> None:
        self.there.pop(lane).cancel()
        await self.broker.end_trainer(f"t{lane}.{self.starts[lane]}", f"m{lane}")

    async def come_back(self, lane: int) -> None:
        self.starts[lane] += 1
        trainer = ExpectedTrainer(ranks=1, machine=f"m{lane}", lane=lane, is_optional=True)
        await self.broker.expect(f"t{lane}.{self.starts[lane]}", trainer)
        self.there[lane] = asyncio.ensure_future(self._serve(lane))

    async def move(self) -> None:
        """Leave and come back for a while; then all are there."""
        until = asyncio.get_running_loop().time() + RESTLESS_S
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(self.chance.uniform(0.5, 4))
            lane = self.chance.choice([*self.starts])
            await (self.leave(lane) if lane in self.there else self.come_back(lane))
        for lane in self.starts.keys() - self.there.keys():
            await self.come_back(lane)


async def measured(broker: Broker, run: Run) -> tuple[Run, int]:
    """A run and the lane on which it ended."""
    return run, await lane_of(broker, dataclasses.replace(job(run.run_id), block=run.repeat))


async def lanes_of_runs(seed: int) -> dict[str, int]:
    """run_id -> the lane on which the run ended last."""
    chance = random.Random(seed)
    machines = Machines(chance.choice((2, 3, 4)), chance)
    moving = asyncio.ensure_future(machines.move())
    broker = machines.broker
    turns = Turns(
        PLAN.runs, lambda blocks: (), at_once=lambda: max(1, len(machines.there)),
        end_block=broker.dispatcher.end_block,
    )  # fmt: skip
    under_way: set[asyncio.Task[tuple[Run, int]]] = set()
    found: dict[str, int] = {}
    for run_id in turns:
        if run_id is not None:
            under_way.add(asyncio.ensure_future(measured(broker, RUNS[run_id])))
            continue
        # A lane that joined may begin a block meanwhile.
        done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        for task in done:
            run, lane = task.result()
            found[run.run_id] = lane
            turns.ended(run, lane)
    for task in (moving, *machines.there.values()):
        task.cancel()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_every_run_ends_and_those_of_a_block_on_one_lane(seed: int) -> None:
    found: dict[str, int] = {}

    async def scenario() -> None:
        found.update(await lanes_of_runs(seed))

    run_virtually(scenario())
    assert found.keys() == RUNS.keys()
    for block in range(PLAN.repeats):
        assert len({found[run.run_id] for run in PLAN.runs if run.repeat == block}) == 1
