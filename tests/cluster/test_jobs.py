"""What a cluster opens to others: of a sweep nothing, of `ray start` to those with its token. Sweeps as its jobs."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tests.conftest import PROJECT, SMALL, call, command_line, free_ports, without_ray

BIN = Path(sys.executable).parent
TINY = ("--dataset", SMALL, "--batch-per-rank", "16", "--world-size", "1", "--repeats", "1", "--epochs", "1")
MARKER = "what-stands-in-the-environment"


@dataclass
class Cluster:
    """A head on this machine, with a dashboard, that asks for a token."""

    address: str
    jobs: str
    token: str
    home: Path
    pid: int = 0

    def environment(self, **changes: str) -> dict[str, str]:
        return without_ray(HOME=str(self.home), MARKER=MARKER) | changes

    def allowed(self) -> dict[str, str]:
        return self.environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=self.token)

    def job(self, command: str, *words: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
        line = [str(BIN / "ray"), "job", command, "--address", self.jobs, *words]
        return call(line, PROJECT, env=self.allowed(), timeout=timeout)

    def submit(
        self, name: str, *words: str, program: tuple[str, ...] = ("sweeps/batch_size.py",)
    ) -> subprocess.CompletedProcess[str]:
        """Submit a sweep, and do not wait for it."""
        environment = json.dumps({"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}})
        options = ["--no-wait", "--working-dir", ".", "--submission-id", name, "--runtime-env-json", environment]
        return self.job("submit", *options, "--", sys.executable, *program, *words)

    def ended(self, name: str, within_s: float = 150) -> str:
        """How a job ended."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            status = self.job("status", name)
            state = re.search(r"succeeded|failed|stopped", (status.stdout + status.stderr).lower())
            if state:
                return state.group()
            time.sleep(1)
        raise AssertionError(self.job("logs", name).stdout)

    def log(self, name: str) -> str:
        """What the sweep has printed, without the words of the command that fetches it."""
        return self.job("logs", name).stdout.partition("Running entrypoint for job")[2].partition("\n")[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # A short path: Ray's sockets are below it.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        head, dashboard, client, agent = free_ports(4)
        # Ray takes a loopback address for the machine's own.
        made = Cluster(f"127.0.0.1:{head}", f"http://127.0.0.1:{dashboard}", secrets.token_hex(32), Path(folder))
        flags = {
            "port": head, "num-cpus": 2, "temp-dir": folder, "include-dashboard": "true",
            "dashboard-host": "127.0.0.1", "dashboard-port": dashboard, "ray-client-server-port": client,
            "dashboard-agent-listen-port": agent,
        }  # fmt: skip
        words = [str(BIN / "ray"), "start", "--head", "--block", *(f"--{name}={flags[name]}" for name in flags)]
        with open(Path(folder) / "said", "w") as said:
            started = subprocess.Popen(words, env=made.allowed(), stdout=said, stderr=said, start_new_session=True)
        made.pid = started.pid
        try:
            until = time.monotonic() + 90
            while made.job("list").returncode != 0:
                assert started.poll() is None and time.monotonic() < until, (Path(folder) / "said").read_text()  # noqa: PT018
                time.sleep(1)
            yield made
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(60)


@pytest.mark.slow
def test_what_ray_start_opens_to_other_machines(cluster: Cluster) -> None:
    """What SECURITY.md says of Ray itself; a change there needs a change of its table."""
    opened: dict[str, set[str]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            if str(cluster.home) in words:
                for link in process.net_connections("inet"):
                    if link.status == psutil.CONN_LISTEN:
                        opened.setdefault(process.name(), set()).add(f"{link.laddr.ip}:{link.laddr.port}")
    everywhere = {
        name for name, places in opened.items() if any(place.startswith(("0.0.0.0", ":")) for place in places)
    }
    assert {"gcs_server", "raylet"} <= everywhere, opened
    assert cluster.jobs.removeprefix("http://") in set[str]().union(*opened.values()), opened


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{}, {"RAY_AUTH_TOKEN": "x"}, {"RAY_AUTH_MODE": "token"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x"}],
)
def test_without_the_right_token_a_job_is_refused_in_one_line(
    cluster: Cluster, variables: dict[str, str], tmp_path: Path
) -> None:
    words = command_line("batch_size", *TINY, "--address", cluster.address)
    done = call(words, tmp_path, env=cluster.environment(**variables), timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    (error,) = done.stderr.splitlines()
    assert "requires a token, and this machine sends none or another one. Export RAY_AUTH_MODE=token" in error
    assert cluster.token not in error


@pytest.mark.slow
def test_a_job_leaves_plain_lines_its_rows_and_no_word_of_the_token_or_the_environment(
    cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert cluster.submit("plain", *TINY, "--out", str(out)).returncode == 0
    assert cluster.ended("plain") == "succeeded", cluster.log("plain")
    log = cluster.log("plain")
    assert "[1/1] repeat=0: ok, " in log
    assert not {"\x1b", "\r"} & set(log)
    (row,) = (json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines())
    assert row["outcome"] == "ok"
    written = b"".join(file.read_bytes() for file in out.rglob("*") if file.is_file()) + log.encode()
    assert cluster.token.encode() not in written
    assert MARKER.encode() not in written


@pytest.mark.slow
def test_a_job_sweeps_a_script(cluster: Cluster, tmp_path: Path) -> None:
    program = ("-m", "dmls_ray", "sweep", "examples/train.py")
    flags = ("--batch-size", "8", "16", "--steps", "8", "--repeats", "1", "--out", str(tmp_path / "out"))
    assert cluster.submit("script", *flags, "--", "--lr", "0.01", program=program).returncode == 0
    assert cluster.ended("script") == "succeeded", cluster.log("script")
    rows = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    assert sorted((row["config"]["batch_size"], row["outcome"]) for row in rows) == [(8, "ok"), (16, "ok")]


@pytest.mark.slow
def test_results_that_ray_would_delete_with_the_job_are_refused(cluster: Cluster) -> None:
    assert cluster.submit("lost", *TINY).returncode == 0
    assert cluster.ended("lost") == "failed"
    assert "is in the job's copy of its files, which Ray deletes after the job; give --out" in cluster.log("lost")


@pytest.mark.slow
def test_a_job_that_is_stopped_keeps_what_has_ended_and_leaves_no_process(cluster: Cluster, tmp_path: Path) -> None:
    def sweep_processes() -> list[str]:
        found = []
        for process in psutil.Process(cluster.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found.append(" ".join(process.cmdline()))
        return [words for words in found if "sweeps/batch_size" in words or words.startswith("ray::Ray")]

    out = tmp_path / "out"
    sweep = ("--dataset", SMALL, "--batch-per-rank", "16", "--world-size", "1", "--repeats", "400", "--epochs", "1")
    assert cluster.submit("stopped", *sweep, "--out", str(out)).returncode == 0
    until = time.monotonic() + 120
    while not (out / "runs.jsonl").exists() or (out / "runs.jsonl").read_bytes().count(b"\n") < 2:
        assert time.monotonic() < until, cluster.log("stopped")
        time.sleep(0.5)
    assert sweep_processes()
    assert cluster.job("stop", "stopped").returncode == 0
    assert cluster.ended("stopped") == "stopped"
    until = time.monotonic() + 60
    while left := sweep_processes():
        assert time.monotonic() < until, left
        time.sleep(0.2)
    rows = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    assert 2 <= len(rows) < 400
    assert {row["outcome"] for row in rows} == {"ok"}
    log = cluster.log("stopped")
    assert "Stopping: the runs that have ended are kept." in log
    assert "Stopped. Runs that had ended are kept" in log
    assert (out / "report.html").exists()


RUN = ("--dataset", SMALL, "--world-size", "2", "--batch-per-rank", "1", "--epochs", "15", "--repeats", "1")


def reaches_beyond(address: str) -> bool:
    """Whether what listens at this address can be reached from another machine."""
    parsed = ip_address(address)
    return not (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def listening(sweep: psutil.Process) -> set[tuple[str, str]]:
    """Where a sweep and all that it has started wait for others, and who does."""
    found = set()
    for one in [sweep, *sweep.children(recursive=True)]:
        try:
            opened = [link.laddr.ip for link in one.net_connections("inet") if link.status == psutil.CONN_LISTEN]
            # One that is about to end has its name for a while when its words are gone.
            found |= {(" ".join([one.name(), *one.cmdline()]), address) for address in opened}
        except psutil.Error:
            continue  # it has ended meanwhile
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "others"),
    [
        (("--dashboard",), ()),
        (("--launcher", "spawn"), ()),
        # What these bring along listens everywhere, and cannot be told not to.
        (("--launcher", "torchrun"), ("torch.distributed.run",)),
        (("--launcher", "mpirun"), ("mpiexec", "hydra_pmi_proxy", "mpi4py")),
    ],
    ids=["ray", "spawn", "torchrun", "mpirun"],
)
def test_nothing_of_a_sweep_listens_beyond_this_machine(
    flags: tuple[str, ...], others: tuple[str, ...], tmp_path: Path
) -> None:
    addresses = [at.address for ats in psutil.net_if_addrs().values() for at in ats if at.family == socket.AF_INET]
    if not any(map(reaches_beyond, addresses)):
        pytest.skip(f"no interface of this machine reaches beyond it: {addresses}")
    with open(tmp_path / "said", "w") as said:
        sweep = psutil.Popen(command_line("batch_size", *RUN, *flags), cwd=tmp_path, stdout=said, stderr=said)
    found: set[tuple[str, str]] = set()
    while sweep.poll() is None:
        found |= listening(sweep)
        time.sleep(0.2)
    assert sweep.returncode == 0, (tmp_path / "said").read_text()
    ranks = "ray::RayTrainWorker" if flags == ("--dashboard",) else "gcs_server"
    assert {ranks in name for name, _ in found} == {True, False}, found
    assert not [one for one in found if reaches_beyond(one[1]) and not any(name in one[0] for name in others)]
