"""Sweeps on a cluster of several hosts, run from the command line of one of them as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import PROJECT, SMALL, command_line
from tests.multihost.hosts import Network

pytestmark = pytest.mark.multihost


@pytest.mark.slow
def test_a_sweep_uses_the_ranks_of_hosts_whose_names_and_first_interfaces_mislead(
    network: Network, tmp_path: Path
) -> None:
    one, _ = network.add(2, multi_homed=True)
    network.cluster(1, 1, env={"PYTHONPATH": str(PROJECT)})
    flags = ("--address", "auto", "--world-size", "1", "2", "--dataset", SMALL, "--epochs", "1", "--repeats", "1")
    words = command_line("world_size", *flags, "--device", "cpu", "--batch-per-rank", "16")
    done = one.run(words, cwd=tmp_path, env={"PYTHONPATH": str(PROJECT)}, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads(line) for line in (tmp_path / "results/world_size/runs.jsonl").read_text().splitlines()]
    assert [run["outcome"] for run in runs] == ["ok", "ok"]
    machines = {len(run["ranks"]): {rank["machine"] for rank in run["ranks"]} for run in runs}
    assert len(machines[1]) == 1
    assert machines[2] == {"host-1", "host-2"}
