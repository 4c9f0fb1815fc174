"""When an actor of Tune is ended, with real processes in the place of actors."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

import psutil
import pytest
import ray

from dmls_ray.cluster.tune import stopped_actors
from dmls_ray.cluster.tune.stopped_actors import end_stopped_actors


@pytest.fixture
def actor() -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def look(actor: psutil.Process, *before_each: Callable[[], None]) -> list[str]:
    """Look at a process so many times, and do something before each look; return the lines printed."""
    remaining, printed, ended = iter(before_each), list[str](), threading.Event()

    def pids(class_name: str) -> list[int]:
        if (action := next(remaining, None)) is None:
            ended.set()
            return []
        action()
        return [actor.pid] if actor.is_running() and actor.status() != psutil.STATUS_ZOMBIE else []

    with (
        patch.object(stopped_actors, "pids_of_actors", pids),
        patch.object(stopped_actors, "CHECK_INTERVAL_S", 0.001),
        patch.object(stopped_actors, "STOPPED_TIMEOUT_S", 0.003),
    ):
        end_stopped_actors("RunTrainable", ended, printed.append)
    return printed


def nothing() -> None:
    pass


def no_answer() -> None:
    raise ray.exceptions.RaySystemError("the head does not answer")


def stop(actor: psutil.Process) -> Callable[[], None]:
    """Stop it, and wait until the kernel has done so."""

    def act() -> None:
        actor.suspend()
        while actor.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)

    return act


def test_an_actor_that_is_stopped_at_three_looks_in_a_row_is_ended_with_one_line(actor: psutil.Process) -> None:
    printed = look(actor, nothing, stop(actor), nothing, no_answer, nothing, nothing, nothing)
    assert printed == ["Ray Tune's actor was stopped for 0.003 s; another takes its place."]
    assert not actor.is_running()


def test_an_actor_that_runs_or_goes_on_in_time_stays(actor: psutil.Process) -> None:
    assert not look(actor, stop(actor), nothing, actor.resume, stop(actor), nothing, actor.resume, nothing, nothing)
    assert actor.is_running()
