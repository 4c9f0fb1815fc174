"""`LaneCheck`: whether lanes that share a machine slow each other down (an A/A check).

In each block one run has the machine for itself, and an equal one runs on the same lane while the other lanes run it,
too. Blocks are added until the speeds are equal within `EQUIVALENT`, or are not, or there are `MOST_BLOCKS`.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from dmls_ray.analysis.stats.block_model import BlockModel, Contrast
from dmls_ray.analysis.stats.formatting import ratio_text
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.stats.looks import FIRST_LOOK, Looks, next_look
from dmls_ray.cluster.messages import Job
from dmls_ray.execution.recorder import Recorder, speed_of
from dmls_ray.execution.remembered import remember, remembered
from dmls_ray.records.model import FIRST_LANE
from dmls_ray.records.provenance import describe_versions, machine_facts
from dmls_ray.records.run_events import RunEvent, RunFinished, RunStarted

if TYPE_CHECKING:
    from dmls_ray.cluster.tune.run_jobs import Check
    from dmls_ray.cluster.worker_group import WorkerGroup
    from dmls_ray.config.grid import Run
    from dmls_ray.execution.jobs import JobFactory
    from dmls_ray.execution.view import View

EQUIVALENT = 0.02
"""Largest difference of speed that counts as none: 2%."""
MOST_BLOCKS = 30
_CHECKS = "lane_checks"
"""Name under which results are remembered."""

Verdict = Literal["equal", "slower", "undecided"]


def verdict_on_lanes(beside: Interval | None) -> Verdict:
    """Whether the ratio of the speed beside other lanes to that alone is 1, as far as it matters."""
    if beside is None or beside.low is None or beside.high is None:
        return "undecided"
    if beside.low > 1 / (1 + EQUIVALENT) and beside.high < 1 + EQUIVALENT:
        return "equal"
    if beside.high < 1 / (1 + EQUIVALENT) or beside.low > 1 + EQUIVALENT:
        return "slower"
    return "undecided"


def describe_lanes(beside: Interval | None, lanes: int) -> str:
    """`a run beside 1 other lane on its machine has 0.99 [0.98, 1.00] of its speed alone`.

    Args:
        beside: the ratio.
        lanes: how many lanes a machine has.
    """
    others = f"{lanes - 1} other lane{'s' if lanes > 2 else ''}"
    ratio = ratio_text(beside) or "an unknown share"
    return f"a run beside {others} on its machine has {ratio} of its speed alone"


class LaneCheck(Iterator[str | None]):
    """Hands out the runs of the check, and takes their events.

    Args:
        job: the run to repeat.
        lanes: how many lanes there are, all on one machine.
        speed_of: the speed of an ended run; None if it did not end ok.
        end_block: told of each block that has ended.
    """

    def __init__(
        self,
        job: Job,
        lanes: int,
        *,
        speed_of: Callable[[RunFinished], float | None],
        end_block: Callable[[int], None],
    ) -> None:
        self._job, self._lanes = job, lanes
        self._speed_of, self._end_block = speed_of, end_block
        self.jobs: dict[str, Job] = {}
        """The runs that were handed out, by run_id."""
        self.speeds: dict[str, dict[int, float]] = {"beside": {}, "alone": {}}
        """Of the runs that are compared: kind -> block -> speed."""
        self.failure = ""
        """How a run ended that was not ok; the check then ends with its block."""
        self._measured: dict[str, tuple[str, int]] = {}
        """run_id of a run that is compared -> its kind and block."""
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._runs = self._in_turn()

    def __next__(self) -> str | None:
        """The run_id of the next run; None while others must begin or end first."""
        return next(self._runs)

    def _in_turn(self) -> Iterator[str | None]:
        look = FIRST_LOOK
        for block in range(MOST_BLOCKS):
            lane = FIRST_LANE + block % self._lanes
            others = [number for number in range(FIRST_LANE, FIRST_LANE + self._lanes) if number != lane]
            alone = self._make(lane, compared=("alone", block))
            yield alone
            yield from self._wait_for(self._ended, [alone])
            # The others begin before the run that is compared, and go on beyond its end.
            first = [self._make(other) for other in others]
            yield from first
            yield from self._wait_for(self._begun, first)
            beside = self._make(lane, compared=("beside", block))
            yield beside
            second = [self._make(other) for other in others]
            yield from second
            yield from self._wait_for(self._ended, [beside, *first, *second])
            if self.failure:
                return
            if block + 1 == look:
                if verdict_on_lanes(self.contrast) != "undecided":
                    return
                look = min(next_look(look), MOST_BLOCKS)

    def _wait_for(self, seen: set[str], run_ids: list[str]) -> Iterator[None]:
        while not seen.issuperset(run_ids):
            yield None

    def _make(self, lane: int, compared: tuple[str, int] | None = None) -> str:
        """A run on a lane, in a block of its own; returns its run_id."""
        run_id = f"{self._job.trial_id}-check-{len(self.jobs)}-{lane}"
        self.jobs[run_id] = job_of_check(self._job, {"run_id": run_id})
        if compared is not None:
            self._measured[run_id] = compared
        return run_id

    def listen(self, proposal: dict[str, Any], event: RunEvent) -> None:
        """Take an event of a run."""
        run_id = proposal["run_id"]
        if isinstance(event, RunStarted):
            self._begun.add(run_id)
        if not isinstance(event, RunFinished):
            return
        self._ended.add(run_id)
        self._begun.add(run_id)  # one that is skipped does not start
        self._end_block(self.jobs[run_id].block)
        speed = self._speed_of(event)
        if speed is None:
            self.failure = self.failure or f"{event.verdict.outcome.value}: {event.verdict.reason}".rstrip(": ")
        elif run_id in self._measured:
            kind, block = self._measured[run_id]
            self.speeds[kind][block] = speed

    @property
    def contrast(self) -> Contrast | None:
        """The ratio of the speed beside the other lanes to that alone; None without a block that has both."""
        blocks = len(self.speeds["beside"])
        looks: Looks = "last" if blocks == MOST_BLOCKS else "open"
        return BlockModel(self.speeds, is_ratio=True, looks=looks).against("beside", "alone")


def are_known_to_differ(job: Job, lanes: int) -> bool:
    """Whether an earlier check did not find that a run beside so many lanes is as fast as alone."""
    known = known_effect(job, lanes)
    return known is not None and verdict_on_lanes(known) != "equal"


def known_effect(job: Job, lanes: int) -> Interval | None:
    """What an earlier check of the same machine, versions, run and number of lanes found; None without one."""
    return remembered(_CHECKS).get(_key(job, lanes))


def effect_of_sharing(
    group: WorkerGroup, factory: JobFactory, run: Run, recorder: Recorder, view: View, look: Check
) -> str:
    """What lanes of one machine do to each other, where they may measure at the same time; empty where they may not.

    Args:
        group: the ranks.
        factory: makes the job of a run.
        run: the run that is repeated for it.
        recorder: says how fast a run was.
        view: shows messages.
        look: looks whether all that the sweep needs is there.
    """
    job = factory.create(run)
    beside = known_effect(job, group.lanes)
    if beside is None:
        view.note(f"Checking whether {group.lanes} lanes on one machine slow each other down ...")
        # A copy, since no run of the check is one of the sweep.
        of_check = replace(recorder)
        check = _checked(group, job, lambda event: speed_of(of_check.finished(run, event)), look)
        if check.failure:
            view.note(f"A run of the check ended with {check.failure}.")
        else:
            beside = check.contrast
    text = describe_lanes(beside, group.lanes_of_a_machine)
    is_equal = verdict_on_lanes(beside) == "equal"
    if is_equal or factory.options.accept_slower:
        text += f", equal within {EQUIVALENT:.0%}" if is_equal else "; these times are those of a shared machine"
        view.note(f"{group.lanes} lanes measure at the same time: {text}.")
        return text
    view.note(f"Runs go one at a time: {text}. --accept-slower uses {group.lanes} lanes, and tables say so.")
    return ""


def _checked(
    group: WorkerGroup, job: Job, speed_of_event: Callable[[RunFinished], float | None], look: Check
) -> LaneCheck:
    """Run the check, and remember what it has found."""
    from dmls_ray.cluster.tune.run_jobs import run_jobs
    from dmls_ray.cluster.tune.trainables import TuneJobSet
    from dmls_ray.launchers.command import run_command

    check = LaneCheck(job, group.lanes, speed_of=speed_of_event, end_block=group.end_block)
    jobs = TuneJobSet(job_of=functools.partial(job_of_check, job), run_ids=check)
    run_jobs(group, jobs, check.listen, launch=run_command, check=look)
    is_complete = verdict_on_lanes(check.contrast) != "undecided" or len(check.speeds["beside"]) == MOST_BLOCKS
    if check.contrast is not None and is_complete and not check.failure:
        remember(_CHECKS, {_key(job, group.lanes): check.contrast})
    return check


def job_of_check(job: Job, config: dict[str, Any]) -> Job:
    """The job of a run of the check, in the driver and in Tune's actors.

    Args:
        job: the run to repeat.
        config: with the run_id, which ends with the number of the run and its lane.
    """
    run_id = config["run_id"]
    *_, number, lane = run_id.split("-")
    # A trial of its own: that it fails must not give up the trial of the user's.
    trial_id = f"{job.trial_id}-check"
    return replace(job, run_id=run_id, trial_id=trial_id, block=-1 - int(number), lane=int(lane), artifacts=None)


def _key(job: Job, lanes: int) -> str:
    facts = [machine_facts(), describe_versions(), job.trial_id, lanes]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
