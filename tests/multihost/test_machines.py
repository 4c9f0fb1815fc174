"""The sweep of published report C on several hosts, over links of several rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT, command_line
from tests.multihost.hosts import Host, Network

pytestmark = [pytest.mark.multihost, pytest.mark.slow, pytest.mark.timeout(600)]

PATH = {"PYTHONPATH": str(PROJECT)}
MNIST_SHAPED = "synthetic:shape=1x28x28,classes=10,train=512,test=256"


def sweep(host: Host, folder: Path, *flags: str) -> tuple[str, dict[tuple[int, int], dict[str, Any]]]:
    """Run `sweeps/machines.py` on a host; return its output and its records by (machines, ranks per machine)."""
    words = command_line("machines", "--address", "auto", "--out", str(folder), "--device", "cpu", "--repeats", "1")
    done = host.run([*words, *flags], cwd=folder.parent, env=PATH, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    return done.stdout, {(row["config"]["machines"], row["config"]["ranks_per_machine"]): row for row in rows}


def test_a_slower_link_changes_the_exposed_communication_and_not_the_accuracy(network: Network, tmp_path: Path) -> None:
    # The names and first interfaces of these hosts mislead: a sweep must use the address that Ray uses.
    first, second = network.add(2, multi_homed=True)
    network.cluster(2, 2, env=PATH)
    # The gradients of this model have 2.7 MB, so the link matters even on a busy machine.
    flags = ("--dataset", MNIST_SHAPED, "--model", "simplecnn", "--epochs", "1", "--warmup-steps", "2")
    output, table = sweep(first, tmp_path / "unshaped", *flags)
    assert {key: row["outcome"] for key, row in table.items()} == dict.fromkeys(((1, 1), (1, 2), (2, 1), (2, 2)), "ok")
    for (machines, ranks_per_machine), row in table.items():
        names = [rank["machine"] for rank in row["ranks"]]
        assert names == sorted(f"host-{number + 1}" for number in range(machines) for _ in range(ranks_per_machine))
        assert ("link_mbit_per_s" in row["metrics"]) == ("link_round_trip_ms" in row["metrics"]) == (machines > 1)
        assert row["machine"]["host"] == "host-1"
        assert len(row["machine"].get("beside", [])) == machines - 1
    for host in (first, second):
        # Data are prepared once per machine, not once per rank.
        prepared = host.run(["find", "/tmp/cache/decoded", "-name", "meta.json"], check=True).stdout.split()
        assert len(prepared) == 1
    assert "link Mbit/s" in output
    assert "machines 2 vs 1" in output
    exposed = [table[2, 1]["metrics"]["exposed_comm_ms"]]
    for rate, expected in (("1gbit", 1000), ("100mbit", 100)):
        second.shape(rate)
        spread = ("--machines", "2", "--ranks-per-machine", "1")
        _, shaped = sweep(first, tmp_path / rate, *flags, *spread)
        row = shaped[2, 1]
        assert row["metrics"]["test_accuracy"] == table[2, 1]["metrics"]["test_accuracy"]
        # On a busy machine the rate may be far below the limit. The rate follows from the difference of two times, so
        # it is too high where the first time was disturbed.
        assert expected / 4 < row["metrics"]["link_mbit_per_s"] < 2 * expected
        exposed.append(row["metrics"]["exposed_comm_ms"])
    assert exposed[0] < exposed[2]
    assert exposed[1] < exposed[2] / 2


def test_a_machine_on_which_ranks_cannot_start_is_named_before_anything_starts(
    network: Network, tmp_path: Path
) -> None:
    first, second = network.add(2)
    # On host-2 Python imports this module in place of the project.
    elsewhere = tmp_path / "no_project"
    elsewhere.mkdir()
    (elsewhere / "dmls_ray.py").write_text("raise ImportError('not the project')\n")
    address = first.ray_start_head(num_cpus=1, env=PATH)
    second.ray_join(address, num_cpus=1, env={"PYTHONPATH": str(elsewhere)})
    words = command_line("machines", "--address", "auto", "--out", str(tmp_path / "out"))
    done = first.run(words, cwd=tmp_path, env=PATH, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert "host-2 cannot run ranks: dmls_ray is missing" in line
    assert "Traceback" not in done.stdout
