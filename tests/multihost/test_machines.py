"""The table of report C on hosts of their own, over links of several rates."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT, command_line
from tests.multihost.hosts import Host, Network

pytestmark = [pytest.mark.multihost, pytest.mark.slow]

PATH = {"PYTHONPATH": str(PROJECT)}
MNIST_SHAPED = "synthetic:shape=1x28x28,classes=10,train=512,test=256"


def sweep(host: Host, folder: Path, *flags: str) -> tuple[str, dict[tuple[int, int], dict[str, Any]]]:
    """What `sweeps/machines.py` prints on a host, and its records by machines and ranks on each."""
    words = command_line("machines", "--address", "auto", "--out", str(folder), "--device", "cpu", "--repeats", "1")
    done = host.run([*words, *flags], cwd=folder.parent, env=PATH, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    return done.stdout, {(row["config"]["machines"], row["config"]["ranks_per_machine"]): row for row in rows}


def test_a_slower_link_shows_in_the_exposed_communication_and_not_in_the_accuracy(
    network: Network, tmp_path: Path
) -> None:
    # Hosts whose names and first interfaces mislead: a sweep goes by the address that Ray has.
    one, two = network.add(2, multi_homed=True)
    network.cluster(2, 2, env=PATH)
    # A model whose gradients are 2.7 MB, so that a link counts however busy this machine is.
    flags = ("--dataset", MNIST_SHAPED, "--model", "simplecnn", "--epochs", "1", "--warmup-steps", "2")
    told, table = sweep(one, tmp_path / "unshaped", *flags)
    assert {key: row["outcome"] for key, row in table.items()} == dict.fromkeys(((1, 1), (1, 2), (2, 1), (2, 2)), "ok")
    for (machines, each), row in table.items():
        names = [rank["machine"] for rank in row["ranks"]]
        assert names == sorted(f"host-{number + 1}" for number in range(machines) for _ in range(each))
        assert (row["link_mbit_per_s"] is None) == (row["link_round_trip_ms"] is None) == (machines == 1)
        assert row["machine"]["host"] == "host-1"
        assert len(row["machine"].get("beside", [])) == machines - 1
    for host in (one, two):
        # Prepared once a machine, and not once a rank.
        found = host.run(["find", "/tmp/cache/decoded", "-name", "meta.json"], check=True).stdout.split()
        assert len(found) == 1
    assert "link Mbit/s" in told
    assert "from machines 1 to 2" in told
    exposed = [table[2, 1]["exposed_comm_ms"]]
    for rate, expected in (("1gbit", 1000), ("100mbit", 100)):
        two.shape(rate)
        spread = ("--machines", "2", "--ranks-per-machine", "1")
        _, shaped = sweep(one, tmp_path / rate, *flags, *spread)
        row = shaped[2, 1]
        assert row["test_accuracy"] == table[2, 1]["test_accuracy"]
        # A busy machine may stay well below what the shaping allows; the rate is of a difference of two times, so where
        # the first of them was disturbed it is too high.
        assert expected / 4 < row["link_mbit_per_s"] < 2 * expected
        exposed.append(row["exposed_comm_ms"])
    assert exposed[0] < exposed[2]
    assert exposed[1] < exposed[2] / 2


def test_a_machine_without_what_ranks_need_is_named_before_anything_starts(network: Network, tmp_path: Path) -> None:
    one, two = network.add(2)
    # There Python does not find this project.
    elsewhere = tmp_path / "no_project"
    elsewhere.mkdir()
    (elsewhere / "dmls_ray.py").write_text("raise ImportError('not this one')\n")
    address = one.ray_start_head(num_cpus=1, env=PATH)
    two.ray_join(address, num_cpus=1, env={"PYTHONPATH": str(elsewhere)})
    words = command_line("machines", "--address", "auto", "--out", str(tmp_path / "out"))
    done = one.run(words, cwd=tmp_path, env=PATH, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert "host-2 cannot run ranks: dmls_ray is missing" in line
    assert sys.executable in line, "with the command that cures it"
    assert "Traceback" not in done.stdout
