"""Runs of launchers, as Tune's Trainables follow them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dmls_ray.cluster.tune import trainables
from dmls_ray.cluster.tune.trainables import LaunchedRun
from dmls_ray.config.options import RunLimits
from dmls_ray.records.run_events import Progress, RankEvent, RankResult, RunFinished, RunProgressed, RunStarted
from tests.cluster.scheduler.ranks import job


def test_whoever_follows_a_launched_run_hears_how_long_ago_it_made_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainables, "NEWS_INTERVAL_S", 0.2)
    may_end = threading.Event()

    def launch(*_: Any, emit: Callable[[RankEvent], None], **__: Any) -> list[RankResult]:
        time.sleep(0.1)
        emit(Progress())
        may_end.wait(20)
        return [RankResult(rank=0)]

    run = LaunchedRun(job("r"), launch, RunLimits())
    assert run.events() == [RunStarted(attempt=1)]
    (event,) = run.events()
    assert isinstance(event, RunProgressed)
    assert 0 < event.seconds_ago < 20
    may_end.set()
    events = run.events()
    while not isinstance(events[-1], RunFinished):
        events = run.events()
    assert events[-1].attempts == 1
