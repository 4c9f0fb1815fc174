"""Real failures of runs, ranks and parts of the system, through Ray: nothing is lost, no other run is affected."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmls_ray import load
from tests.conftest import PROJECT, SMALL, Command, command_line
from tests.test_sweeps import GRID, Family, cluster, epoch_metrics, lines, start

# On a busy machine the start of a sweep alone takes minutes. Limits of time end only tests that hang.
pytestmark = pytest.mark.timeout(900)

STEADY = "tests.failing:steady"
STALL_S = 15
"""Much longer than a rank takes for a first training pass on a busy machine, so that only a hung rank is ended."""

SHORT_RUNS = ("--dataset", SMALL, "--batch-per-rank", "8", "--epochs", "2", "--device", "cpu", "--oversubscribe")


def model_name(record: Any) -> str:
    return str(record.config["model"].rpartition(":")[2])


def models(*names: str) -> tuple[str, ...]:
    """Return the flag of a sweep over the steady model and these failing models."""
    return ("--model", STEADY, *(f"tests.failing:{name}" for name in names))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Working folder from which the modules of the tests can be imported."""
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    return tmp_path


def assert_steady_unaffected(folder: Path, sweep_command: Command, *flags: str) -> None:
    """Assert that the steady model's runs equal those of a sweep of the steady model alone."""
    done = sweep_command("grid", *flags, "--model", STEADY, "--out", "alone")
    assert done.returncode == 0, done.stderr
    alone = {record.run_id: epoch_metrics(record) for record in load(folder / "alone").records}
    steady = [record for record in load(folder / "results" / "grid").records if model_name(record) == "steady"]
    assert steady
    for record in steady:
        assert record.outcome == "ok"
        assert epoch_metrics(record) == alone[record.run_id]


@pytest.mark.slow
def test_a_run_that_hangs_is_a_timeout_and_its_ranks_run_the_next_run(sweep_command: Command, here: Path) -> None:
    flags = (*SHORT_RUNS, "--world-size", "2", "--repeats", "2", "--max-retries", "0", "--give-up-after", "1")
    done = sweep_command("grid", *flags, *models("loop_in_step_of_rank_1"), "--stall-timeout", str(STALL_S))
    assert done.returncode == 1, done.stderr
    records = load(here / "results" / "grid").records
    hung, given_up = (record for record in records if model_name(record) != "steady")
    reason = f"no progress for {STALL_S} s (stall_timeout)"
    assert (hung.outcome, hung.reason) == ("timeout", reason)
    assert (given_up.outcome, given_up.reason) == ("skipped", f"given up after 1 equal failures (timeout: {reason})")
    assert [record.outcome.value for record in records if model_name(record) == "steady"] == ["ok", "ok"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_every_way_in_which_a_rank_hangs_is_a_timeout(sweep_command: Command, here: Path, rank: int) -> None:
    hanging = [
        f"{how}_in_{when}_of_rank_{rank}" for how, when in (("stop", "step"), ("loop", "setup"), ("wait", "test"))
    ]
    flags = (*SHORT_RUNS, "--world-size", "2", "--repeats", "1")
    done = sweep_command("grid", *flags, *models(*hanging), "--stall-timeout", str(STALL_S), "--max-retries", "0")
    assert done.returncode == 1, done.stderr
    for record in load(here / "results" / "grid").records:
        assert record.outcome == ("ok" if model_name(record) == "steady" else "timeout"), record.reason
    assert_steady_unaffected(here, sweep_command, *flags)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_every_way_in_which_a_rank_dies_is_killed_and_retried_once(
    sweep_command: Command, here: Path, rank: int
) -> None:
    dying = [f"{how}_in_{when}_of_rank_{rank}" for how in ("sigkill", "sigsegv") for when in ("setup", "step", "test")]
    flags = (*SHORT_RUNS, "--world-size", "2", "--repeats", "1")
    done = sweep_command("grid", *flags, *models(*dying))
    assert (done.returncode, done.stderr) == (1, "")
    assert "raylet" not in done.stdout
    assert "\x1b" not in done.stdout
    for record in load(here / "results" / "grid").records:
        if model_name(record) != "steady":
            assert record.outcome == "killed", record.reason
            assert record.attempts == 2
            (first,) = record.earlier_attempts
            assert (first["outcome"], first["attempt"]) == ("killed", 1)
    assert_steady_unaffected(here, sweep_command, *flags)


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_a_timeout(sweep_command: Command, here: Path) -> None:
    done = sweep_command(
        "grid", *SHORT_RUNS, "--epochs", "2", "1000000", "--repeats", "1", "--run-timeout", "30", "--max-retries", "0"
    )
    assert done.returncode == 1, done.stderr
    quick, slow = sorted(load(here / "results" / "grid").records, key=lambda record: record.config["epochs"])
    assert quick.outcome == "ok"
    assert (slow.outcome, slow.reason) == ("timeout", "not done after 30 s (run_timeout)")
    assert slow.epochs, "reported epochs are kept"


def is_alive(process: psutil.Process, title: str) -> bool:
    """Whether a process still runs and has a title that begins with this."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()).startswith(title)
    return False


def find(family: Family, title: str) -> psutil.Process:
    """Wait for a process with this title; return the newest."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        family.look()
        matching = [process for process in family.members if is_alive(process, title)]
        if matching:
            return max(matching, key=lambda process: process.create_time())
        time.sleep(0.05)
    raise AssertionError(f"no process has the title {title}: {[' '.join(p.cmdline())[:60] for p in family.members]}")


@pytest.mark.slow
def test_the_death_of_trains_controller_reserves_no_cores_of_a_joined_cluster_without_a_dashboard(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, "--include-dashboard=false") as (family, address, environment):
        process = start(
            *command_line("batch_size", *GRID, "--epochs", "20", "--repeats", "2", "--address", address),
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip
        folder = tmp_path / "results" / "batch_size"
        for runs in (2, 4):
            while len(lines(folder)) < runs and process.poll() is None:
                time.sleep(0.02)
            find(family, "ray::TrainController").kill()
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, out + err
        assert [record.outcome.value for record in load(folder).records] == ["ok"] * 8
        family.look()
        assert not [process for process in family.members if is_alive(process, "ray::PlacementGroupCleaner")]


@pytest.mark.slow
def test_a_rank_that_rays_memory_monitor_kills_is_out_of_memory(
    sweep_command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = psutil.virtual_memory()
    monkeypatch.setenv("RAY_memory_usage_threshold", str((memory.total - memory.available + 6 * 2**30) / memory.total))
    done = sweep_command("grid", *SHORT_RUNS, "--repeats", "1", *models("growing"))
    assert done.returncode == 0, done.stderr
    large, small = sorted(load(here / "results" / "grid").records, key=model_name)
    assert (large.outcome, large.attempts) == ("oom", 1)
    assert large.reason == "1 of 1 ranks died: Ray's memory monitor ended it"
    assert small.outcome == "ok"


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """Memory cgroup with a limit of 2 GiB, as of a container."""
    version_1 = Path("/sys/fs/cgroup/memory")  # version 2 has one tree for all controllers
    limit = "memory.limit_in_bytes" if version_1.is_dir() else "memory.max"
    group = (version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")) / f"dmls_ray-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(2 * 2**30))
    except OSError as error:
        pytest.skip(f"this machine allows no new memory cgroup: {error}")
    yield group
    group.rmdir()


@pytest.mark.slow
def test_a_rank_that_the_kernel_kills_for_its_memory_is_out_of_memory(
    sweep_command: Command, here: Path, small_cgroup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLS_RAY_TEST_CGROUP", str(small_cgroup))
    done = sweep_command("grid", *SHORT_RUNS, "--repeats", "1", *models("starving"))
    assert done.returncode == 0, done.stdout
    starved, steady = sorted(load(here / "results" / "grid").records, key=lambda record: model_name(record) == "steady")
    assert (starved.outcome, starved.attempts) == ("oom", 1)
    assert "out of memory, the kernel ended 1 process on" in starved.reason
    assert steady.outcome == "ok"


@pytest.mark.slow
def test_an_unreadable_sample_is_an_error_of_its_run_only(sweep_command: Command, here: Path) -> None:
    flags = (*SHORT_RUNS, "--world-size", "2", "--repeats", "1", "--loader", "dataloader")
    done = sweep_command("grid", *flags, "--dataset", SMALL, "tests.failing:broken_data")
    assert done.returncode == 1, done.stderr
    by_name = {record.config["dataset"]: record for record in load(here / "results" / "grid").records}
    assert by_name[SMALL].outcome == "ok"
    broken = by_name["tests.failing:broken_data"]
    assert broken.outcome == "error"
    assert "sample 31 is broken" in broken.traceback


@pytest.mark.slow
def test_an_idle_rank_that_dies_affects_no_run(sweep_command: Command, tmp_path: Path) -> None:
    flags = (*GRID, "--epochs", "20")
    process = start(*command_line("batch_size", *flags), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    folder, killed = tmp_path / "results" / "batch_size", set[int]()
    for count in itertools.count():
        while len(lines(folder)) <= count and process.poll() is None:
            time.sleep(0.005)
        if process.poll() is not None:
            break
        pids = {rank["pid"] for rank in lines(folder)[-1]["ranks"]} - killed
        if count in (3, 7) and pids:
            killed.add(max(pids))
            psutil.Process(max(pids)).send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    assert len(killed) == 2
    records = load(folder).records
    assert [record.outcome.value for record in records] == ["ok"] * 12
    assert sweep_command("batch_size", *flags, "--out", "alone").returncode == 0
    alone = {record.run_id: epoch_metrics(record) for record in load(tmp_path / "alone").records}
    assert all(epoch_metrics(record) == alone[record.run_id] for record in records)


@pytest.mark.slow
def test_every_failure_of_a_user_function_is_one_row_and_affects_no_other_run(
    sweep_command: Command, here: Path
) -> None:
    failures = ("nothing", "nothing-finite", "raise", "oom", "sigkill", "loop", "uneven")
    flags = ("--train", "tests.failing:user_function", "--world-size", "1", "2", "--repeats", "1", "--device", "cpu")
    limits = ("--oversubscribe", "--stall-timeout", str(STALL_S), "--max-retries", "0")
    done = sweep_command("grid", *flags, *limits, "--set", "how", *failures)
    assert done.returncode == 1, done.stderr
    records = load(here / "results" / "tests-failing-user_function").records
    outcomes = {how: {record.outcome.value for record in records if record.config["how"] == how} for how in failures}
    assert outcomes == {
        "nothing": {"ok"}, "nothing-finite": {"diverged"}, "raise": {"error"}, "oom": {"oom"}, "sigkill": {"killed"},
        "loop": {"timeout"}, "uneven": {"ok", "error"},
    }  # fmt: skip
    (raised, *_) = (record for record in records if record.config["how"] == "raise")
    assert raised.reason == "ArithmeticError: a fault of the user"
    assert "in user_function" in raised.traceback
    assert [epoch.metrics["train_loss"] for epoch in raised.epochs] == [1.0], "events before the failure are kept"
    done = sweep_command("grid", *flags, *limits, "--set", "how", "nothing", "--out", "alone")
    assert done.returncode == 0, done.stderr
    alone = {record.run_id: record.metrics for record in load(here / "alone").records}
    assert {record.run_id: record.metrics for record in records if record.config["how"] == "nothing"} == alone


@pytest.mark.slow
def test_a_trial_that_fails_under_another_launcher_is_given_up(sweep_command: Command, here: Path) -> None:
    flags = (*SHORT_RUNS, "--launcher", "spawn", "--repeats", "3", "--max-retries", "0", "--give-up-after", "2")
    done = sweep_command("grid", *flags, *models("sigkill_in_step_of_rank_0"))
    assert done.returncode == 1, done.stderr
    records = load(here / "results" / "grid").records
    assert [record.outcome.value for record in records if model_name(record) == "steady"] == ["ok"] * 3
    failed = [record for record in records if model_name(record) != "steady"]
    assert [record.outcome.value for record in failed] == ["killed", "killed", "skipped"]
    assert failed[-1].reason.startswith("given up after 2 equal failures (killed")


DIES_WHILE_PYTORCH_LOADS = """
import os, signal, sys

class Dies:
    def find_spec(self, name, path=None, target=None):
        if name == "dmls_ray.training.engine" and "RayTrainWorker" in open("/proc/self/cmdline").read():
            os.kill(os.getpid(), signal.SIGKILL)

sys.meta_path.insert(0, Dies())
"""


@pytest.mark.slow
def test_ranks_that_die_before_they_can_serve_end_the_sweep_with_the_reason(
    sweep_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES_WHILE_PYTORCH_LOADS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    done = sweep_command("grid", *SHORT_RUNS, "--repeats", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "died before they could serve" in done.stderr
    assert "4 times in a row. The runs that had ended are kept" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_a_training_function_leaves_behind_does_not_reach_the_next_run(sweep_command: Command, here: Path) -> None:
    flags = ("--train", "tests.failing:leave_behind", "--world-size", "2", "--device", "cpu", "--oversubscribe")
    done = sweep_command("grid", *flags, "--repeats", "2", "--set", "crashes", "0", "1", "--out", "all")
    assert done.returncode == 1, done.stdout + done.stderr
    records = load(here / "all").records
    outcomes = {(record.config["crashes"], record.outcome.value) for record in records}
    assert outcomes == {(0, "ok"), (1, "killed")}
    assert {record.attempts for record in records if record.config["crashes"]} == {2}
    parents = {record.metrics["parent"] for record in records if not record.config["crashes"]}
    assert len(parents) == 1, "the process of rank 0 serves all runs, also after crashes"


@pytest.mark.slow
def test_files_that_a_killed_sweep_leaves_in_the_folder_for_temporary_files_are_gone_after_the_next(
    sweep_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The names of sockets in it have little room.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d") as short:
        temporary = Path(short)
        monkeypatch.setenv("RAY_TMPDIR", short)
        monkeypatch.setenv("TMPDIR", short)
        flags = ("--dataset", SMALL, "--batch-per-rank", "8", "--world-size", "1", "--device", "cpu")
        process = start(
            *command_line("grid", *flags, "--launcher", "spawn", "--epochs", "1000000"),
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        family = Family(process)
        while not list(temporary.glob("dmls_ray-run-*")):
            assert process.poll() is None
            time.sleep(0.05)
        family.look()
        process.kill()
        process.wait()
        # Some of Ray's processes look for the others every minute only.
        for member in family.members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        assert not family.left()
        abandoned = list(temporary.glob("dmls_ray-*"))
        assert len(abandoned) == 3, "files of Tune and Train, of the run, and of Ray"
        done = sweep_command("grid", *flags, "--epochs", "1", "--out", "next")
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(temporary.glob("dmls_ray-*")) == []
