"""Real sweeps of which a process is killed or stopped, always one that belongs to the test: the supervisor's work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dmls_ray.execution.supervisor import stopped_text
from tests.conftest import GRID, PROJECT, call, command_line
from tests.test_sweeps import Family, cluster, lines, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FLAGS = (*GRID, "--epochs", "60", "--repeats", "2", "--batch-per-rank", "8")
"""Four runs that take about a second each."""

WITHIN_S = 240
"""Time in which a sweep ends on a busy machine."""

VICTIMS = {
    "broker": ("ray::Broker", "The scheduler's process (broker) died"),
    "controller": ("ray::TrainController", "Ray Train's controller died"),
    "Tune's actor": ("ray::RunTrainable", "Ray Tune's actor died"),
    "raylet": ("/raylet", "Ray's node process (raylet) has ended"),
    "GCS": ("/gcs_server", "Ray's control process (GCS) has ended"),
    "sweep": ("sweeps/batch_size.py", "The process of the sweep was ended by SIGKILL"),
}
"""By name: what its command line has, and why the sweep starts again."""


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

    @property
    def of_sweep(self) -> psutil.Process:
        """Process of the sweep, which the supervisor has started."""
        (child,) = (
            item for item in psutil.Process(self.process.pid).children() if "sweeps/" in " ".join(item.cmdline())
        )
        return child

    def parts(self, words: str) -> list[psutil.Process]:
        """Processes whose command line has these words; not the supervisor."""
        self.family.look()
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if words in " ".join(process.cmdline()[:2]):
                    found.append(process)
        return found

    def part(self, words: str) -> psutil.Process:
        """The first of these."""
        return self.parts(words)[0]

    def end(self) -> tuple[int, str, str]:
        """Wait until the command ends; return its exit code and what it has printed to both streams."""
        self.family.look()
        out, err = self.process.communicate(timeout=WITHIN_S)
        assert not self.family.left()
        return self.process.returncode, out, err

    def ends_after_a_restart(self) -> str:
        """Assert that the sweep ends well after one line on its restart; return that line."""
        code, _, err = self.end()
        self.assert_whole()
        assert (code, err.count("\n")) == (0, 1), err
        return err

    def assert_whole(self) -> None:
        """Assert that each of the four runs has one row."""
        rows = lines(self.results)
        assert len({row["run_id"] for row in rows}) == len(rows) == 4
        assert {row["outcome"] for row in rows} == {"ok"}


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Function that starts a sweep; whatever is left of it ends with the test."""
    started: list[Sweep] = []

    def begin(*flags: str, command: list[str] | None = None, **environment: str) -> Sweep:
        words = command or command_line("batch_size", *FLAGS, "--out", "out", *flags)
        started.append(Sweep(words, tmp_path, **environment))
        return started[-1]

    yield begin
    for one in started:
        for process in one.family.members:
            if process.is_running():
                process.kill()
        one.process.communicate()


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_sweep_that_loses_a_process_starts_again_and_no_row_is_lost_or_twice(
    victim: str, sweep: Callable[..., Sweep]
) -> None:
    words, reason = VICTIMS[victim]
    hit = sweep()
    hit.wait_for_rows(1)
    hit.part(words).kill()
    err = hit.ends_after_a_restart()
    assert err.startswith(reason)
    assert err.endswith("; the sweep starts again (restart 1).\n")


def test_a_sweep_with_a_silent_ray_is_ended_and_starts_again(sweep: Callable[..., Sweep]) -> None:
    impatient = "\n".join((
        "import runpy, sys",
        "from dmls_ray.execution import executor",
        "executor.SILENT_TIMEOUT_S = 20.0",  # an answer comes every 10 s
        "del sys.argv[:1]",
        "runpy.run_path(sys.argv[0], run_name='__main__')",
    ))  # fmt: skip
    python, *words = command_line("batch_size", *FLAGS, "--out", "out")
    hit = sweep(command=[python, "-c", impatient, *words])
    hit.wait_for_rows(1)
    hit.of_sweep.suspend()
    assert hit.ends_after_a_restart().startswith("The sweep did not answer for 20 s. ")


def test_without_restarts_the_command_ends_with_one_line_and_the_same_command_continues(
    sweep: Callable[..., Sweep],
) -> None:
    first = sweep("--restarts", "0")
    first.wait_for_rows(1)
    first.part("/raylet").kill()
    code, _, err = first.end()
    kept = lines(first.results)
    assert code == 75
    assert err == (
        f"Ray's node process (raylet) has ended. Runs kept: {len(kept)}; the same command runs the others.\n"
    )
    second = sweep("--restarts", "0")
    assert second.end()[::2] == (0, "")
    second.assert_whole()
    assert lines(second.results)[: len(kept)] == kept


def test_the_supervisor_gives_up_after_restarts_without_a_new_run(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(
        "import os, signal\n"
        "from dmls_ray.cli.call import is_to_be_supervised\n"
        "from dmls_ray.config.sweep_file import Preset\n"
        "from dmls_ray.cli.sweep_script import main\n"
        "if __name__ == '__main__':\n"
        "    if not is_to_be_supervised(None):\n"
        "        print('started', flush=True)\n"
        "    from dmls_ray.execution import supervisor\n"
        "    made = supervisor.Heartbeat.of_supervisor\n"
        "    def die():\n"
        "        made().report(restarts=2)\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    supervisor.Heartbeat.of_supervisor = die\n"
        "    main(Preset(name='dying', axis=None, axes={}))\n"
    )
    done = call([sys.executable, "dying.py"], tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT)}, timeout=60)
    assert done.returncode == 75
    assert done.stdout == "started\n" * 3
    died = "The process of the sweep was ended by SIGSEGV. Runs"
    assert done.stderr.splitlines() == [
        f"{died} done: 0; the sweep starts again (restart 1).",
        f"{died} done: 0; the sweep starts again (restart 2).",
        f"{died} kept: 0; the same command runs the others.",
    ]


def test_a_restart_of_a_fresh_sweep_continues_in_its_folder(sweep: Callable[..., Sweep]) -> None:
    (folder := sweep("--restarts", "0", "--repeats", "1")).end()
    hit = sweep("--fresh")
    hit.results = folder.results.with_name("out-2")
    hit.wait_for_rows(1)
    hit.part("ray::Broker").kill()
    assert hit.end()[0] == 0
    hit.assert_whole()
    assert not folder.results.with_name("out-3").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("to_all", [False, True])
def test_a_signal_stops_the_sweep_whether_it_reaches_the_supervisor_or_all_processes(
    number: int, to_all: bool, sweep: Callable[..., Sweep]
) -> None:
    stopped = sweep()
    stopped.wait_for_rows(1)
    if to_all:
        os.killpg(stopped.process.pid, number)
    else:
        stopped.process.send_signal(number)
    code, _, err = stopped.end()
    assert (code, err) == (130, f"{stopped_text(stopped.results.name)}\n")
    assert (stopped.results / "report.html").exists()


@pytest.mark.parametrize("part", ["/gcs_server", "ray::Broker"])
def test_ctrl_c_ends_a_sweep_of_which_a_part_is_silent(part: str, sweep: Callable[..., Sweep]) -> None:
    stopped = sweep()
    stopped.wait_for_rows(1)
    stopped.part(part).suspend()
    stopped.process.send_signal(signal.SIGINT)
    assert stopped.end()[::2] == (130, f"{stopped_text(stopped.results.name)}\n")


@pytest.mark.parametrize("is_joined", [False, True])
def test_nothing_is_left_of_a_sweep_whose_supervisor_is_killed(
    is_joined: bool, sweep: Callable[..., Sweep], tmp_path: Path
) -> None:
    def kill_and_look(running: Sweep, family: Family) -> None:
        running.wait_for_rows(1)
        running.family.look()
        family.look()
        ranks = []
        for process in family.members:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "RayTrainWorker" in "".join(process.cmdline()):
                    ranks.append(process)
        assert ranks
        running.process.kill()
        assert not running.family.left(30)
        _, alive = psutil.wait_procs(ranks, timeout=30)
        assert not alive

    if not is_joined:
        running = sweep()
        kill_and_look(running, running.family)
        return
    with cluster(tmp_path, "--include-dashboard=false") as (family, address, environment):
        kill_and_look(sweep("--address", address, **environment), family)
        assert any(process.is_running() and process.name() == "raylet" for process in family.members)


def test_a_lost_head_of_a_joined_cluster_is_waited_for_and_the_cluster_stays_its_users(
    sweep: Callable[..., Sweep], tmp_path: Path
) -> None:
    with cluster(tmp_path, "--include-dashboard=false") as (family, address, environment):
        joined = sweep("--address", address, "--restarts", "1", **environment)
        joined.wait_for_rows(1)
        family.look()
        (head,) = (process for process in family.members if process.is_running() and process.name() == "gcs_server")
        head.kill()
        code, _, err = joined.end()
    assert code == 75
    assert "the sweep starts again (restart 1)" in err
    assert err.endswith("the same command runs the others.\n")


def test_in_python_an_error_says_call_again_and_the_next_call_continues(
    sweep: Callable[..., Sweep], tmp_path: Path
) -> None:
    (tmp_path / "twice.py").write_text("""
import ray  # as a notebook may, before anything of this package is there

from dmls_ray import ClusterLostError, sweep

axes = {
    "dataset": "synthetic:shape=1x8x8,classes=4,train=96,test=40", "batch_per_rank": 8, "epochs": 60, "device": "cpu"
}
if __name__ == "__main__":
    try:
        sweep(axes, repeats=4, out="out")
    except ClusterLostError as error:
        print("lost:", error)
    print(repr(sweep(axes, repeats=4, out="out")))
""")
    both = sweep(command=[sys.executable, "twice.py"])
    both.wait_for_rows(1)
    # Ray itself may end a process whose raylet has died.
    both.part("ray::Broker").kill()
    out, err = both.process.communicate(timeout=WITHIN_S)
    assert (both.process.returncode, err) == (0, "")
    assert "lost: The scheduler's process (broker) died. The runs that had ended are kept; the same command" in out
    assert "Results('out', 4 runs: 4 ok)" in out.splitlines()[-1]
    assert not both.family.left()
