"""The Slurm script under a real Slurm, on simulated hosts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import PROJECT
from tests.multihost.hosts import LOST_SOON, Host, HostsError, Network
from tests.multihost.slurm import Slurm

pytestmark = [pytest.mark.multihost, pytest.mark.timeout(600)]

SCRIPT = PROJECT / "sweeps" / "cluster" / "slurm.sbatch"
STOPPED = "Stopped. Runs that had ended are kept"
SWEEP = (sys.executable, "-m", "dmls_ray", "sweep")
ENV = {"PYTHONPATH": str(PROJECT), "MARKER": "a-value-of-the-environment"}

SAY_NODES = """
import os, ray
ray.init(address="auto", log_to_driver=False)
@ray.remote
def gpus():
    return os.environ["SLURM_GPUS_ON_NODE"]
for node in ray.nodes():
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    of_slurm = ray.get(gpus.options(scheduling_strategy=there).remote())
    print(f"{node['NodeName']}: {node['Resources']['CPU']:g} cores, {of_slurm} GPUs", flush=True)
"""
"""Script that prints what each node of Ray's cluster has."""


@pytest.fixture(scope="module")
def slurm(
    hosts_possible: None, shared_folders: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    """Slurm with nodes of 4 and 2 cores, that each have one GPU without a driver."""
    with Network(shared_folders) as network:
        try:
            slurm = Slurm(network, tmp_path_factory.mktemp("slurm"), cpus=(4, 2), gpus=1)
        except HostsError as error:
            pytest.skip(f"this machine cannot run Slurm: {error}")
        yield slurm


@pytest.fixture(autouse=True)
def idle_again(slurm: Slurm) -> Iterator[None]:
    """Cancel the jobs of a test at its end, and wait until the nodes are idle."""
    yield
    slurm.run("scancel", "--user=root", "--state=PENDING")
    slurm.run("scancel", "--user=root")
    slurm.wait_for_nodes()


class Job:
    """A job that runs the script, or one of an array."""

    def __init__(self, slurm: Slurm, folder: Path, job_id: str) -> None:
        self.slurm, self.folder, self.id = slurm, folder, job_id

    def log(self) -> str:
        """Return what all jobs of the folder have printed."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("dmls_ray-*.log")))

    def shows(self) -> dict[str, str]:
        """Return the properties of the job."""
        return dict(re.findall(r"(\w+)=(\S*)", self.slurm.query("scontrol", "--oneliner", "show", "job", self.id)))

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        until = time.monotonic() + 240
        while not (value := condition()):
            assert time.monotonic() < until, f"{self.log()}\n{self.shows()}"
            time.sleep(0.1)
        return value

    def is_in(self, state: str) -> None:
        """Wait until the job is in a state; it must not end in another one."""

        def is_there() -> bool:
            now = self.shows()["JobState"]
            assert now == state or now not in {"COMPLETED", "FAILED", "TIMEOUT"}, f"{self.log()}\n{self.shows()}"
            return now == state

        self.wait_for(is_there)

    def has_begun(self, mark: str) -> None:
        """Wait until a run has created its file."""
        self.wait_for((self.folder / mark).exists)

    def is_queued_again(self) -> None:
        """Wait until the job is queued again and its nodes are free; it has left nothing."""
        self.is_in("PENDING")
        self.slurm.wait_for_nodes()
        assert not left_of(self.slurm, self.folder)

    def starts_now(self) -> None:
        """Start a job that is queued again, for which Slurm would wait for two minutes, with an hour from now on."""
        # A node refuses a job that starts in the second in which it ended.
        time.sleep(2)
        self.slurm.run("scontrol", "update", f"JobId={self.id}", "StartTime=now", "TimeLimit=60")
        self.is_in("RUNNING")


def submit(slurm: Slurm, folder: Path, command: Sequence[str], *options: str, **settings: str) -> Job:
    """Submit a job that runs the script with a command, with options of sbatch and settings of the script."""
    done = slurm.run("sbatch", "--parsable", *options, SCRIPT, *command, cwd=folder, env=ENV | settings)
    assert done.returncode == 0, done.stderr
    return Job(slurm, folder, done.stdout.strip())


def sweep_of(marks: Path, *, repeats: int) -> list[str]:
    """Return the command of a sweep whose runs wait, each for the file `go-<repeat>` in a folder."""
    flags = ["--set", "marks", str(marks), "--repeats", str(repeats), "--world-size", "1", "--device", "cpu"]
    return [*SWEEP, "tests.multihost.waiting:in_turn", *flags, "--out", str(marks / "out")]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "runs.jsonl").read_text().splitlines()]


def repeats_of(folder: Path) -> list[int]:
    """Return the repeats of the runs that are ok, in the order in which they ended."""
    return [row["repeat"] for row in rows_of(folder) if row["outcome"] == "ok"]


def commands_on(host: Host) -> dict[int, list[str]]:
    """Return the command of each process of a host, without those that are ending."""
    found = {}
    for process in host.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found[process.pid] = process.cmdline()
    return found


def left_of(slurm: Slurm, folder: Path) -> list[str]:
    """Return the processes of Ray and the folders with tokens that are left."""
    lines = [" ".join(command) for node in slurm.nodes for command in commands_on(node).values()]
    return [line for line in lines if "ray" in line] + [str(path) for path in folder.glob(".ray-*")]


def test_a_job_sweeps_a_script_on_all_cores_of_its_nodes_and_leaves_nothing(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "say_nodes.py").write_text(SAY_NODES)
    small = "--ranks-per-machine 1 --batch-size 8 --steps 8 --repeats 1 --out out"
    sweep = f"python -m dmls_ray sweep {PROJECT}/examples/train.py --machines 1 2 {small}"
    command = ["bash", "-euc", f"python say_nodes.py; {sweep}"]
    job = submit(slurm, tmp_path, command, "--nodes=2", "--exclusive", "--gpus-per-node=1")
    job.is_in("COMPLETED")
    assert sorted(re.findall("host-.*GPUs", job.log())) == ["host-1: 4 cores, 1 GPUs", "host-2: 2 cores, 1 GPUs"]
    rows = rows_of(tmp_path)
    assert {(row["config"]["machines"], row["outcome"]) for row in rows} == {(1, "ok"), (2, "ok")}
    assert not left_of(slurm, tmp_path)
    written = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert ENV["MARKER"].encode() not in written
    for text in ("\x1b", "\r", "came", "slurm.sbatch", "error"):
        assert text not in job.log()


def test_a_job_ends_at_once_and_names_the_node_on_which_ray_did_not_start(slurm: Slurm, tmp_path: Path) -> None:
    ray = str(Path(sys.executable).with_name("ray"))
    slurm.nodes[1].run(["mount", "--bind", "/bin/false", ray], check=True)
    try:
        job = submit(slurm, tmp_path, ["python", "-c", "print('ran')"], SWEEP_REQUEUE="3")
        job.is_in("FAILED")
    finally:
        slurm.nodes[1].run(["umount", ray], check=True)
    assert "Ray has not started on host-2" in job.log()
    assert "ran" not in job.log().split()
    assert job.shows()["ExitCode"] == "1:0"
    assert not left_of(slurm, tmp_path)


def test_a_job_at_its_time_limit_queues_itself_again_and_continues_and_scancel_keeps_its_runs(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = submit(slurm, tmp_path, sweep_of(tmp_path, repeats=3), "--nodes=1", SWEEP_REQUEUE="1")
    (tmp_path / "go-0").touch()
    job.has_begun("began-1")
    # A limit that is one or two minutes away: Slurm looks every 30 s whether it is time for the signal.
    passed_s = time.time() - time.mktime(time.strptime(job.shows()["StartTime"], "%Y-%m-%dT%H:%M:%S"))
    slurm.run("scontrol", "update", f"JobId={job.id}", f"TimeLimit={int(passed_s / 60) + 2}")
    job.is_queued_again()
    assert "The time limit has come: the job is queued again (restart 1 of 1)" in job.log()
    assert repeats_of(tmp_path) == [0]
    assert (tmp_path / "out" / "report.html").exists()

    (tmp_path / "go-1").touch()
    job.starts_now()
    job.has_begun("began-2")
    begin = time.monotonic()
    slurm.run("scancel", job.id)
    slurm.wait_for_nodes()
    assert time.monotonic() - begin < 29, "Slurm has killed what was left after 30 s (KillWait)"
    job.is_in("CANCELLED")
    assert not left_of(slurm, tmp_path)
    assert repeats_of(tmp_path) == [0, 1]
    assert job.log().count(STOPPED) == 2


def test_a_job_that_is_requeued_continues_and_ends_at_its_time_limit_where_it_is_not_to_queue_itself(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = submit(slurm, tmp_path, sweep_of(tmp_path, repeats=3), "--nodes=1", SWEEP_REQUEUE="0")
    (tmp_path / "go-0").touch()
    job.has_begun("began-1")
    slurm.run("scontrol", "requeue", job.id)
    job.is_queued_again()
    assert repeats_of(tmp_path) == [0]

    (tmp_path / "go-1").touch()
    job.starts_now()
    job.has_begun("began-2")
    # What Slurm sends before the limit.
    slurm.run("scancel", "--batch", "--signal=USR1", job.id)
    job.is_in("FAILED")
    assert job.shows()["ExitCode"] == "130:0"
    assert "The time limit has come (restarts: 1, SWEEP_REQUEUE=0)" in job.log()
    assert job.log().count(STOPPED) == 2
    assert repeats_of(tmp_path) == [0, 1]
    assert not left_of(slurm, tmp_path)


def test_a_job_of_which_a_node_loses_its_power_goes_on_with_the_others(slurm: Slurm, tmp_path: Path) -> None:
    flags = ["--set", "marks", str(tmp_path), "--machines", "1", "2", "--ranks-per-machine", "1", "--device", "cpu"]
    ends = ["--repeats", "1", "--wait-for-ranks", "2", "--out", str(tmp_path / "out")]
    job = submit(slurm, tmp_path, [*SWEEP, "tests.multihost.waiting:together", *flags, *ends], **LOST_SOON)
    job.has_begun("began-0")
    lost = slurm.nodes[1]
    lost.kill()
    try:
        job.is_in("COMPLETED")
    finally:
        lost.boot()
        slurm.start_node(lost)
    assert "host-2 has left" in job.log()
    assert sorted((row["config"]["machines"], row["outcome"]) for row in rows_of(tmp_path)) == [
        (1, "ok"),
        (2, "skipped"),
    ]


def test_a_job_that_loses_its_first_node_is_queued_again_and_continues(slurm: Slurm, tmp_path: Path) -> None:
    # Ray on the other node would miss the head after three minutes.
    sooner = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5", "RAY_grpc_client_keepalive_timeout_ms": "3000"}
    job = submit(slurm, tmp_path, sweep_of(tmp_path, repeats=2), "--nodes=2", **sooner)
    (tmp_path / "go-0").touch()
    job.has_begun("began-1")
    lost = slurm.nodes[0]
    lost.kill()
    try:
        job.is_in("PENDING")
    finally:
        lost.boot()
        slurm.start_node(lost)
    (tmp_path / "go-1").touch()
    slurm.wait_for_nodes()
    job.starts_now()
    job.is_in("COMPLETED")
    assert repeats_of(tmp_path) == [0, 1]
    assert not list(tmp_path.glob(".ray-*"))


def test_jobs_of_an_array_share_a_node_and_each_queues_only_itself_again(slurm: Slurm, tmp_path: Path) -> None:
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
    sweep = shlex.join(sweep_of(tmp_path / "TASK", repeats=1)).replace("TASK", "$SLURM_ARRAY_TASK_ID")
    options = ("--nodes=1", "--cpus-per-task=1", "--array=1-2", "--nodelist=host-1")
    array = submit(slurm, tmp_path, ["bash", "-c", f"exec {sweep}"], *options, SWEEP_REQUEUE="1")
    first, last = (Job(slurm, tmp_path, f"{array.id}_{number}") for number in (1, 2))
    first.has_begun("1/began-0")
    last.has_begun("2/began-0")
    (tmp_path / "1" / "go-0").touch()
    first.is_in("COMPLETED")
    # The last one has the number of the array.
    assert last.shows()["JobId"] == array.id
    slurm.run("scancel", "--batch", "--signal=USR1", last.id)
    last.is_queued_again()
    (tmp_path / "2" / "go-0").touch()
    last.starts_now()
    last.is_in("COMPLETED")
    assert first.shows()["Restarts"] == "0"
    assert repeats_of(tmp_path / "1") == repeats_of(tmp_path / "2") == [0]


def test_a_sweep_by_salloc_is_stopped_by_a_signal_to_the_script(slurm: Slurm, tmp_path: Path) -> None:
    words = ["salloc", "--nodes=2", "--cpus-per-task=1", "bash", str(SCRIPT), *sweep_of(tmp_path, repeats=2)]
    process = slurm.start(words, cwd=tmp_path, env=ENV)
    (tmp_path / "go-0").touch()
    while not (tmp_path / "began-1").exists():
        assert process.poll() is None, process.printed()
        time.sleep(0.1)
    commands = commands_on(slurm.controller)
    (script,) = [pid for pid, command in commands.items() if command[:2] == ["bash", str(SCRIPT)]]
    os.kill(script, signal.SIGTERM)
    assert process.wait(60) == 130, process.printed()
    assert STOPPED in process.printed()
    assert repeats_of(tmp_path) == [0]
    assert not left_of(slurm, tmp_path)
