"""Lanes on several hosts: blocks that are measured at the same time, and what becomes of the block of a lost host."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.lanes import SCRIPT
from dmls_ray import load
from tests.conftest import PROJECT
from tests.multihost.hosts import LOST_SOON, Network, OnHost

pytestmark = [pytest.mark.multihost, pytest.mark.slow, pytest.mark.timeout(600)]

ENV = {"PYTHONPATH": str(PROJECT)}
TRIALS, REPEATS = 3, 24


def words(out: Path, *flags: str) -> list[str]:
    sizes = ["--batch-size", "8", "16", "1024", "--steps", "none", "--repeats", str(REPEATS)]
    command = [sys.executable, "-m", "dmls_ray", "sweep", "train.py", "--address", "auto", "--out", str(out)]
    return [*command, *sizes, *flags]


def rows(out: Path) -> list[dict[str, Any]]:
    file = out / "runs.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]


def wait_for_rows(out: Path, count: int, process: OnHost, host: str = "") -> None:
    """Wait for so many rows, of a host if one is named."""
    until = time.monotonic() + 200
    while len([row for row in rows(out) if host in ("", row["machine"]["host"])]) < count:
        assert process.poll() is None, process.printed()
        assert time.monotonic() < until, process.printed()
        time.sleep(0.05)


def test_a_sweep_on_lanes_loses_a_host_gets_another_is_killed_and_ends_as_on_one_lane(
    network: Network, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    head, _, lost, _, late = network.add(5)
    address = network.cluster(1, 1, 1, 1, env=ENV | LOST_SOON)
    out = tmp_path / "lanes"
    sweep = head.start(words(out), cwd=tmp_path, env=ENV)
    wait_for_rows(out, 6, sweep)
    lost.kill()
    wait_for_rows(out, 8, sweep)
    late.ray_join(address, num_cpus=1, env=ENV | LOST_SOON)
    wait_for_rows(out, 2, sweep, "host-5")
    for process in head.processes():
        # The supervisor and the sweep itself; a process may end meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            if str(out) in process.cmdline():
                process.kill()
    sweep.wait()
    printed = sweep.printed()
    done = head.run(words(out), cwd=tmp_path, env=ENV, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr

    everything = load(out).records
    assert len(everything) == TRIALS * REPEATS
    assert {record.outcome for record in everything} == {"ok"}
    lanes = defaultdict(set)
    for record in everything:
        lanes[record.repeat, record.session].add((record.lane, record.machine["host"]))
    assert all(len(places) == 1 for places in lanes.values()), lanes
    hosts = {host for places in lanes.values() for _, host in places}
    assert {"host-1", "host-2", "host-4", "host-5"} <= hosts
    assert "lane 2 machine host-2" in printed
    assert "host-3 has left" in printed

    alone = tmp_path / "alone"
    done = head.run(words(alone, "--lanes", "1", "--repeats", "5"), cwd=tmp_path, env=ENV, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {(record.lane, record.machine["host"]) for record in load(alone).records} == {(1, "host-1")}
    assert [run["run_id"] for run in rows(alone)] == [record.run_id for record in load(alone).records]
    verdicts = [
        json.loads(head.run(table_of(folder), cwd=tmp_path, env=ENV).stdout)["effects"] for folder in (out, alone)
    ]
    decided = ("more", "less", "equal")
    for one, other in zip(*verdicts, strict=True):
        assert (one["pair"], one["metric"]) == (other["pair"], other["metric"])
        if one["verdict"] in decided and other["verdict"] in decided:
            assert one["verdict"] == other["verdict"]


def table_of(folder: Path) -> list[str]:
    return [sys.executable, "-m", "dmls_ray", "table", str(folder), "--format", "json"]


def test_no_run_starts_on_a_host_that_will_be_preempted_and_its_block_moves(network: Network, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    head, second = network.add(2)
    address = network.cluster(1, 1, env=ENV)
    out = tmp_path / "out"
    sweep = head.start(words(out), cwd=tmp_path, env=ENV)
    wait_for_rows(out, 2, sweep, "host-2")
    asked = "import ray; ray.init('auto', logging_level='ERROR'); "
    asked += "print(*[node['NodeID'] for node in ray.nodes() if node['NodeManagerHostname'] == 'host-2'])"
    node = second.python(asked, check=True).stdout.split()[-1]
    drain = ["ray", "drain-node", "--address", address, "--node-id", node, "--deadline-remaining-seconds", "3600"]
    drain += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
    second.run(drain, check=True)
    until = time.monotonic() + 30
    while "host-2 has left" not in sweep.printed():
        assert time.monotonic() < until, sweep.printed()
        time.sleep(0.1)
    before = len(rows(out))
    wait_for_rows(out, TRIALS * REPEATS, sweep)
    assert sweep.wait() == 0, sweep.printed()
    assert {row["machine"]["host"] for row in rows(out)[before + 1 :]} == {"host-1"}
    records = load(out).records
    assert {record.outcome for record in records} == {"ok"}
    hosts = defaultdict(set)
    for record in records:
        hosts[record.repeat].add(record.machine["host"])
    assert all(len(places) == 1 for places in hosts.values()), hosts


def test_doctor_finds_the_slow_host_and_a_sweep_leaves_it_out(network: Network, tmp_path: Path) -> None:
    slower = "time.sleep(0.03 if socket.gethostname() == 'host-2' else 0.02)"
    (tmp_path / "train.py").write_text("import socket\n" + SCRIPT.replace("time.sleep(0.02)", slower))
    head, _, _ = network.add(3)
    network.cluster(1, 1, 1, env=ENV)
    spread = ["--leave-out-slower", "5%", "--repeats", "2"]
    done = head.run(words(tmp_path / "out", *spread), cwd=tmp_path, env=ENV, timeout=300)
    assert done.returncode == 2
    assert "dmls-ray doctor --address auto --lanes all" in done.stderr
    doctor = [sys.executable, "-m", "dmls_ray", "doctor", "train.py", "--address", "auto", "--lanes", "all"]
    doctor += ["--steps", "none", "--max-repeats", "24", "--budget", "600"]
    done = head.run(doctor, cwd=tmp_path, env=ENV, timeout=500)
    assert done.returncode == 3, done.stdout + done.stderr
    ratios = {host: float(ratio) for host, ratio in re.findall(r"^(host-\d): ([\d.]+) \[", done.stdout, re.MULTILINE)}
    assert ratios.keys() == {"host-1", "host-2", "host-3"}, done.stdout
    assert ratios["host-2"] < 0.85 < 1 < min(ratios["host-1"], ratios["host-3"])
    done = head.run(words(tmp_path / "out", *spread), cwd=tmp_path, env=ENV, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {record.machine["host"] for record in load(tmp_path / "out").records} == {"host-1", "host-3"}
    assert "host-2 is left out" in done.stdout
