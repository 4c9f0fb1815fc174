"""Whether lanes of one machine slow each other down."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.execution.lane_check import (
    MOST_BLOCKS,
    LaneCheck,
    _key,
    are_known_to_differ,
    describe_lanes,
    known_effect,
    verdict_on_lanes,
)
from dmls_ray.execution.remembered import remember
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RunFinished, RunStarted, Verdict
from tests.cluster.scheduler.ranks import job


class Machine:
    """Lanes that run one after the other what a check hands out; beside others a run is slower."""

    def __init__(self, lanes: int, *, slowdown: float, noise: float = 0.002, fails: bool = False) -> None:
        self.chance, self.slowdown, self.noise, self.fails = random.Random(1), slowdown, noise, fails
        self.queues: dict[int, list[str]] = defaultdict(list)
        self.ended: list[int] = []
        self.beside: list[tuple[str, int]] = []
        self.speed = 0.0
        self.check = LaneCheck(job("trial-0"), lanes, speed_of=self.speed_of, end_block=self.ended.append)

    def speed_of(self, event: RunFinished) -> float | None:
        return None if event.verdict.outcome is not Outcome.OK else self.speed

    def run(self) -> None:
        """Run all of it: a run begins when its lane is free, and ends when nothing else can begin."""
        begun: dict[int, str] = {}
        while True:
            while (run_id := next(self.check, "")) is not None:
                if not run_id:
                    return
                self.queues[self.check.jobs[run_id].lane].append(run_id)
                self._begin(begun)
            self._begin(begun)
            lane = next(iter(begun))
            run_id = begun.pop(lane)
            self.beside.append((run_id, len(begun)))
            factor = self.slowdown if begun else 1.0
            self.speed = 100 * factor * (1 + self.chance.gauss(0, self.noise))
            outcome = Outcome.ERROR if self.fails else Outcome.OK
            self.check.listen({"run_id": run_id}, RunFinished(verdict=Verdict(outcome=outcome)))

    def _begin(self, begun: dict[int, str]) -> None:
        for lane, queue in self.queues.items():
            if queue and lane not in begun:
                begun[lane] = queue.pop(0)
                self.check.listen({"run_id": begun[lane]}, RunStarted(attempt=1, lane=lane))


@pytest.mark.parametrize(("slowdown", "expected"), [(1.0, "equal"), (0.99, "equal"), (0.6, "slower")])
def test_the_check_ends_when_it_is_known_whether_lanes_slow_each_other_down(slowdown: float, expected: str) -> None:
    machine = Machine(3, slowdown=slowdown)
    machine.run()
    assert verdict_on_lanes(machine.check.contrast) == expected
    assert len(machine.check.speeds["alone"]) <= 8
    assert {item.lane for item in machine.check.jobs.values()} == {1, 2, 3}
    assert sorted(machine.ended) == sorted(item.block for item in machine.check.jobs.values())


def test_what_is_compared_ran_alone_and_beside_all_other_lanes() -> None:
    machine = Machine(3, slowdown=0.6)
    machine.run()
    others = dict(machine.beside)
    compared = {kind: [] for kind in ("alone", "beside")}  # type: ignore[var-annotated]
    for run_id, (kind, _) in machine.check._measured.items():
        compared[kind].append(others[run_id])
    assert set(compared["alone"]) == {0}
    assert min(compared["beside"]) >= 1


def test_a_noisy_machine_is_undecided_after_the_most_blocks_and_runs_that_fail_say_nothing() -> None:
    machine = Machine(2, slowdown=0.97, noise=0.15)
    machine.run()
    assert verdict_on_lanes(machine.check.contrast) == "undecided"
    assert len(machine.check.speeds["alone"]) == MOST_BLOCKS
    failing = Machine(2, slowdown=1.0, fails=True)
    failing.run()
    assert failing.check.contrast is None
    assert failing.check.failure == "error"
    assert {job.block for job in failing.check.jobs.values()} == set(failing.ended)
    assert len(failing.ended) == 4, "a check ends with the first run that fails"
    assert verdict_on_lanes(None) == "undecided"


def test_a_result_is_remembered_for_the_same_run_and_number_of_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))
    assert known_effect(job("trial-0"), 2) is None
    remember("lane_checks", {_key(job("trial-0"), 2): Interval(0.995, 0.99, 1.0)})
    assert known_effect(job("trial-3"), 2) == Interval(0.995, 0.99, 1.0)
    assert known_effect(job("trial-0"), 3) is None
    assert known_effect(job("other-0"), 2) is None
    assert not are_known_to_differ(job("trial-0"), 2)
    remember("lane_checks", {_key(job("trial-0"), 3): Interval(0.9, 0.7, 1.1)})
    assert are_known_to_differ(job("trial-0"), 3), "undecided after the most blocks"
    assert known_effect(job("trial-0"), 2) is not None, "both are kept"
    (tmp_path / "lane_checks.json").write_text("[]")
    assert known_effect(job("trial-0"), 2) is None


def test_the_result_is_said_with_its_interval() -> None:
    assert describe_lanes(Interval(0.8, 0.7, 0.9), 2) == (
        "a run beside 1 other lane on its machine has 0.80 [0.70, 0.90] of its speed alone"
    )
    assert "3 other lanes" in describe_lanes(None, 4)
