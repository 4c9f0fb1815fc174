"""What the threads that watch a cluster report, without Ray."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from dmls_ray.cluster import cluster_watch
from dmls_ray.cluster.cluster_watch import end_processes, watch_head, watch_processes


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Function that starts a child of this process with the name of one of Ray's, and a word of its session."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        program = shutil.copy(shutil.which("sleep") or "", tmp_path / name)
        started.append(subprocess.Popen([program, "600"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("name", "number", "reason"),
    [
        ("raylet", signal.SIGKILL, "Ray's node process (raylet) was killed"),
        ("gcs_server", signal.SIGKILL, "Ray's control process (GCS) was killed"),
        ("gcs_server", signal.SIGTERM, "Ray's control process (GCS) has ended"),
    ],
)
def test_the_end_of_a_process_that_ray_needs_is_reported_once(
    name: str, number: signal.Signals, reason: str, part: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    reasons: list[str] = []
    process, _ = part(name), part("log_monitor")
    process.send_signal(number)
    with patch.object(cluster_watch, "STOP_TIMEOUT_S", 0.01):
        # A process that is a zombie by now has no command line, so the watch begins before the end is seen.
        with patch.object(cluster_watch, "_children", lambda session: [_Child(process.pid, name)]):
            watch_processes(tmp_path, threading.Event(), reasons.append)
    assert reasons == [reason]
    assert process.wait() == -number, "its end is left to whoever has started it"


class _Child:
    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self._name = name

    def name(self) -> str:
        return self._name


def test_a_job_that_is_stopped_as_a_whole_is_no_lost_cluster(
    part: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    reasons: list[str] = []
    process, ended = part("raylet"), threading.Event()
    watch = threading.Thread(target=watch_processes, args=(tmp_path, ended, reasons.append))
    watch.start()
    process.terminate()
    time.sleep(0.3)
    ended.set()
    watch.join()
    assert not reasons


def test_what_is_left_of_a_cluster_is_ended_and_other_children_are_not(
    part: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    left = part("log_monitor")
    other = subprocess.Popen(["sleep", "600"])
    end_processes(tmp_path)
    assert left.wait() in (0, -signal.SIGKILL)
    assert other.poll() is None
    other.kill()
    other.wait()


class Head:
    """Answers in turn: `yes`, `stopped` (the kernel accepts connections), or `gone`. Each takes ten seconds."""

    def __init__(self, *states: str) -> None:
        self._states = list(states)
        self._asked = 0
        self.ended = threading.Event()
        self.said: list[str] = []

    def watch(self) -> list[str]:
        """What is reported until the last answer."""
        with (
            patch.object(cluster_watch, "no_answer", lambda address: "refused" if self._next() == "gone" else None),
            patch.object(
                cluster_watch, "head_answers", lambda address, timeout: self._states[self._asked - 1] == "yes"
            ),
            patch.object(cluster_watch, "CHECK_INTERVAL_S", 0),
            patch("time.monotonic", lambda: 10.0 * self._asked),
        ):
            lost = lambda reason: self.said.append(f"lost: {reason}")  # noqa: E731
            watch_head("host:6379", "The head", self.ended, notify=self.said.append, lost=lost)
        return self.said

    def _next(self) -> str:
        self._asked += 1
        if self._asked == len(self._states):
            self.ended.set()
        return self._states[self._asked - 1]


NOTE = "The head does not answer; if it is silent for 60 s, the sweep ends."


def test_a_head_that_is_stopped_for_half_a_minute_is_noted_and_not_given_up() -> None:
    said = Head("yes", *["stopped"] * 4, "yes", "yes").watch()
    assert said == [NOTE, "The head answers again."]


def test_a_head_that_stays_stopped_is_lost_after_a_minute_although_its_kernel_accepts_connections() -> None:
    assert Head("yes", *["stopped"] * 20).watch() == [NOTE, "lost: The head does not answer any more"]
    assert not Head("yes", *["stopped"] * 2).watch()


def test_a_head_at_whose_address_nothing_listens_is_lost_before_ray_ends_the_process() -> None:
    head = Head("yes", *["gone"] * 20)
    assert head.watch()[-1] == "lost: The head does not answer any more"
    assert head._asked < 6
