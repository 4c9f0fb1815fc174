"""Real sweeps whose cluster is lost: a process of Ray is killed or stopped, always one that belongs to the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import GRID, PROJECT, command_line
from tests.test_sweeps import Family, cluster, lines, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FLAGS = (*GRID, "--epochs", "60", "--repeats", "2", "--batch-per-rank", "8")
"""Four runs that take about a second each."""

PARTS = {"raylet": "Ray's node process (raylet)", "gcs_server": "Ray's control process (GCS)"}

STOPPED = (
    "Stopped. The runs that had ended are kept: `dmls-ray table out` shows them, and the same command runs the "
    "others.\n"
)
WITHIN_S = 120
"""Time in which a sweep ends on a busy machine. It takes 10 s on one that is not, and Ray itself needs more than 60."""


IMPATIENT = """
import runpy
import sys
from dmls_ray.cluster import cluster_watch
cluster_watch.NOTE_AFTER_S = 2.0
cluster_watch.SILENT_TIMEOUT_S = float(sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def impatient(command: list[str], silent_s: float) -> list[str]:
    """Command whose sweep gives a silent head up after so many seconds, and notes it after two."""
    return [command[0], "-c", IMPATIENT, str(silent_s), *command[1:]]


class Sweep:
    """Running sweep."""

    def __init__(self, command: list[str], folder: Path, **environment: str) -> None:
        self.results = folder / "out"
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), **environment}
        pipe = subprocess.PIPE
        self.process = start(*command, cwd=folder, stdout=pipe, stderr=pipe, env=environment)
        self.family = Family(self.process)

    def wait_for_rows(self, count: int) -> None:
        """Wait until so many runs have ended."""
        while len(lines(self.results)) < count:
            assert self.process.poll() is None, self.process.communicate()
            self.family.look()
            time.sleep(0.05)

    def part(self, name: str) -> psutil.Process:
        """Process of Ray that is a child of the command, which has started the cluster."""
        self.family.look()
        (found,) = (child for child in psutil.Process(self.process.pid).children() if child.name() == name)
        return found

    def end(self) -> tuple[int, str, str]:
        """Wait until the command ends; return its exit code and what it has printed to both streams."""
        self.family.look()
        out, err = self.process.communicate(timeout=WITHIN_S)
        assert not self.family.left()
        assert not list(Path("/tmp/ray").glob(f"session_*_{self.process.pid}"))
        return self.process.returncode, out, err


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Function that starts a sweep; whatever is left of it ends with the test."""
    started: list[Sweep] = []

    def begin(command: list[str], **environment: str) -> Sweep:
        started.append(Sweep(command, tmp_path, **environment))
        return started[-1]

    yield begin
    for one in started:
        for process in one.family.members:
            if process.is_running():
                process.kill()
        one.process.communicate()


@pytest.mark.parametrize(
    ("victim", "isolation"), [("raylet", "group"), ("gcs_server", "group"), ("gcs_server", "per_run")]
)
def test_a_sweep_whose_ray_loses_a_process_ends_with_one_line_and_the_same_command_runs_the_rest(
    victim: str, isolation: str, sweep: Callable[..., Sweep]
) -> None:
    command = command_line("batch_size", *FLAGS, "--out", "out", "--isolation", isolation)
    first = sweep(command)
    first.wait_for_rows(1)
    first.part(victim).kill()
    code, _, err = first.end()
    kept = lines(first.results)
    runs = "1 run is" if len(kept) == 1 else f"{len(kept)} runs are"
    assert err == f"{PARTS[victim]} was killed. {runs} kept in out; the same command runs the others.\n"
    assert code == 1
    assert (first.results / "runs.csv").exists()

    second = sweep(command)
    second.wait_for_rows(4)
    assert second.end()[::2] == (0, "")
    assert lines(second.results)[: len(kept)] == kept
    assert len({line["run_id"] for line in lines(second.results)}) == len(lines(second.results)) == 4


@pytest.mark.parametrize("victim", [*PARTS])
def test_after_a_lost_cluster_the_next_sweep_of_the_same_process_starts_another(
    victim: str, sweep: Callable[..., Sweep], tmp_path: Path
) -> None:
    (tmp_path / "twice.py").write_text("""
import ray  # as a notebook may, before anything of this package is there

from dmls_ray import sweep
from dmls_ray.util.errors import HeadLostError

axes = {
    "dataset": "synthetic:shape=1x8x8,classes=4,train=96,test=40", "batch_per_rank": 8, "epochs": 60, "device": "cpu"
}
if __name__ == "__main__":
    try:
        sweep(axes, repeats=4, out="out")
    except HeadLostError as error:
        print("lost:", error)
    print(sweep(axes, repeats=4, out="out"))
""")
    both = sweep([sys.executable, "twice.py"])
    both.wait_for_rows(1)
    both.part(victim).send_signal(signal.SIGKILL)
    out, err = both.process.communicate(timeout=2 * WITHIN_S)
    assert err == ""
    assert both.process.returncode == 0
    assert f"lost: {PARTS[victim]} was killed." in out
    assert out.splitlines()[-1] == "Results('out', 4 runs: 4 ok)"
    assert not both.family.left()


@pytest.mark.parametrize("isolation", ["group", "per_run"])
def test_a_stopped_head_of_a_started_cluster_ends_the_sweep_and_the_same_command_runs_the_rest(
    isolation: str, sweep: Callable[..., Sweep]
) -> None:
    command = command_line("batch_size", *FLAGS, "--out", "out", "--isolation", isolation)
    first = sweep(impatient(command, 10))
    first.wait_for_rows(1)
    first.part("gcs_server").suspend()
    code, out, err = first.end()
    assert f"{PARTS['gcs_server']} does not answer; if it is silent for 10 s, the sweep ends." in out
    assert err.startswith(f"{PARTS['gcs_server']} does not answer any more. ")
    assert (code, err.count("\n")) == (1, 1)
    kept = lines(first.results)

    second = sweep(command)
    second.wait_for_rows(4)
    assert second.end()[::2] == (0, "")
    assert lines(second.results)[: len(kept)] == kept


def test_a_head_that_is_stopped_for_a_while_does_not_end_the_sweep(sweep: Callable[..., Sweep]) -> None:
    waiting = sweep(impatient(command_line("batch_size", *FLAGS, "--out", "out"), 60))
    waiting.wait_for_rows(1)
    head = waiting.part("gcs_server")
    head.suspend()
    time.sleep(30)
    head.resume()
    waiting.wait_for_rows(4)
    code, out, err = waiting.end()
    assert (code, err) == (0, "")
    assert out.index(f"{PARTS['gcs_server']} does not answer") < out.index(f"{PARTS['gcs_server']} answers again.")


@pytest.mark.parametrize("after_s", [0, 8])
def test_ctrl_c_ends_a_sweep_whose_head_is_stopped(after_s: float, sweep: Callable[..., Sweep]) -> None:
    stopped = sweep(command_line("batch_size", *FLAGS, "--out", "out"))
    stopped.wait_for_rows(1)
    stopped.part("gcs_server").suspend()
    time.sleep(after_s)  # then a run has ended, and the main thread waits in a call of Ray
    stopped.process.send_signal(signal.SIGINT)
    code, _, err = stopped.end()
    assert err == STOPPED
    assert code == 130


@pytest.mark.parametrize(
    ("isolation", "ctrl_c"), [("group", False), ("group", True), ("per_run", False), ("per_run", True)]
)
def test_a_sweep_on_a_running_cluster_whose_head_is_stopped_ends_with_one_line(
    isolation: str, ctrl_c: bool, sweep: Callable[..., Sweep], tmp_path: Path
) -> None:
    with cluster(tmp_path, "--include-dashboard=false") as (family, address, environment):
        command = command_line("batch_size", *FLAGS, "--out", "out", "--isolation", isolation, "--address", address)
        joined = sweep(impatient(command, 60 if ctrl_c else 10), **environment)
        joined.wait_for_rows(1)
        family.look()
        (head,) = (process for process in family.members if process.is_running() and process.name() == "gcs_server")
        head.suspend()
        try:
            if ctrl_c:
                joined.process.send_signal(signal.SIGINT)
            code, _, err = joined.end()
        finally:
            head.resume()
    kept = len(lines(joined.results))
    lost = (
        f"The head of the Ray cluster does not answer any more. {kept} run{' is' if kept == 1 else 's are'} kept in "
        "out; once it is back, the same command runs the others.\n"
    )
    assert (code, err) == ((130, STOPPED) if ctrl_c else (1, lost))


def test_a_head_that_ends_while_it_is_asked_prints_nothing(tmp_path: Path) -> None:
    code = """
import threading, time
from dmls_ray.cluster.connect import connect
connect(None, dashboard=False, verbose=False)
import ray
from dmls_ray.cluster.address_check import head_answers
address = ray.get_runtime_context().gcs_address
ended = threading.Event()
def ask():
    while not ended.is_set():
        head_answers(address, 2.0)
for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
time.sleep(1)
ray.shutdown()
ended.set()
"""
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=True,
        timeout=WITHIN_S,
    )  # fmt: skip
    assert done.stderr == ""
