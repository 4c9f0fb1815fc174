"""A run under another launcher than Ray's worker group; without Ray and without processes."""

from __future__ import annotations

from typing import Any

from dmls_ray.cluster.external_run import LaunchedRun
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult, RunFinished
from tests.cluster.scheduler.ranks import job


def test_the_reason_names_a_process_that_sigkill_did_not_end() -> None:
    left = RankResult(
        rank=0,
        outcome=Outcome.KILLED,
        reason="rank 0 left no result",
        left_behind=("process 12, which SIGKILL did not end in 10 s",),
    )

    def launch(*_: Any, **options: Any) -> list[RankResult]:
        while not options["end_reason"]():
            pass
        return [left]

    run = LaunchedRun(job("r"), launch, RunLimits(run_timeout=0.01))
    while not isinstance(finished := run.events()[-1], RunFinished):
        pass
    assert finished.verdict.outcome is Outcome.TIMEOUT
    assert finished.verdict.reason == (
        "not done after 0.01 s (run_timeout); it left process 12, which SIGKILL did not end in 10 s"
    )
