"""Machines that leave, join and return during a sweep: every run is recorded, and the sweep continues."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT, command_line
from tests.multihost.hosts import LOST_SOON, Host, Network, OnHost

pytestmark = [pytest.mark.multihost, pytest.mark.slow, pytest.mark.timeout(600)]

PATH = {"PYTHONPATH": str(PROJECT)}


class Sweep:
    """Running sweep on a host."""

    def __init__(self, host: Host, folder: Path, *flags: str) -> None:
        self.folder = folder
        words = command_line("grid", "--address", "auto", "--out", str(folder / "out"), "--device", "cpu", *flags)
        self.process: OnHost = host.start(words, cwd=folder, env=PATH)

    def lines(self) -> list[dict[str, Any]]:
        """Return all records in the order in which they were written."""
        path = self.folder / "out" / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the last record of each run."""
        return {line["run_id"]: line for line in self.lines()}

    def wait_for(self, condition: Callable[[], Any], within_s: float = 120) -> Any:
        deadline = time.monotonic() + within_s
        while not (value := condition()):
            assert self.process.poll() is None, self.process.printed()
            assert time.monotonic() < deadline, self.process.printed()
            time.sleep(0.05)
        return value

    def has_begun(self, mark: str) -> list[Path]:
        return self.wait_for(lambda: list(self.folder.glob(mark)))

    def ends(self, within_s: float = 240) -> int:
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.process.printed()) from None


def calls(function: str, folder: Path) -> tuple[str, ...]:
    """Flags of a sweep of a function of `waiting`."""
    return ("--train", f"tests.multihost.waiting:{function}", "--set", "marks", str(folder))


def test_runs_of_a_host_without_power_are_run_when_the_host_is_back(network: Network, tmp_path: Path) -> None:
    first, second = network.add(2)
    address = network.cluster(1, 1, env=PATH | LOST_SOON)
    spread = ("--machines", "1", "2", "--ranks-per-machine", "1", "--repeats", "3")
    sweep = Sweep(first, tmp_path, *calls("together", tmp_path), *spread, "--wait-for-ranks", "5", "--max-retries", "0")
    sweep.has_begun("began-0")
    second.kill()
    for number in (0, 1):
        (tmp_path / f"go-{number}").touch()
    # Runs on one machine continue. Runs on two machines are skipped after one common wait.
    sweep.wait_for(lambda: "host-2 has left" in sweep.process.printed())
    sweep.has_begun("began-2")
    second.revive()
    second.ray_join(address, num_cpus=1, env=PATH | LOST_SOON)
    sweep.wait_for(lambda: "host-2 is there: 1 ranks start on it" in sweep.process.printed())
    (tmp_path / "go-2").touch()
    assert sweep.ends() == 0, sweep.process.printed()
    rows = sweep.rows().values()
    assert sorted((row["config"]["machines"], row["outcome"]) for row in rows) == [(1, "ok")] * 3 + [(2, "ok")] * 3
    skipped = [line for line in sweep.lines() if line["outcome"] == "skipped"]
    assert skipped
    assert all("since host-2 left after 5 s (wait_for_ranks)" in line["reason"] for line in skipped)
    (interrupted,) = [line for line in skipped if "earlier_attempts" in line]
    # max_retries is 0: the loss of a machine does not count as a failure of the run.
    assert interrupted["earlier_attempts"][0]["reason"] == "1 of 2 ranks died: host-2 has left"


def test_a_link_cut_for_five_seconds_delays_its_run_and_a_link_that_stays_cut_ends_it(
    network: Network, tmp_path: Path
) -> None:
    first, second = network.add(2)
    # TCP may resend only 7 s after such a cut, and later on a busy machine. Until then the head must not declare the
    # host dead, which LOST_SOON alone would do.
    patient = LOST_SOON | {"RAY_health_check_failure_threshold": "6"}
    network.cluster(1, 1, env=PATH | patient)
    spread = ("--machines", "1", "2", "--ranks-per-machine", "1", "--repeats", "2")
    sweep = Sweep(first, tmp_path, *calls("together", tmp_path), *spread, "--wait-for-ranks", "2")
    sweep.has_begun("began-0")
    second.cut()
    time.sleep(5)
    second.restore()
    (tmp_path / "go-0").touch()
    sweep.has_begun("began-1")
    second.cut()
    (tmp_path / "go-1").touch()
    assert sweep.ends() == 0, sweep.process.printed()
    rows = {(row["config"]["machines"], row["repeat"]): row for row in sweep.rows().values()}
    assert {key: row["outcome"] for key, row in rows.items()} == {
        (1, 0): "ok", (2, 0): "ok", (1, 1): "ok", (2, 1): "skipped"
    }  # fmt: skip
    assert rows[2, 0].get("attempts", 1) == 1
    assert rows[2, 1]["earlier_attempts"][0]["reason"] == "1 of 2 ranks died: host-2 has left"


def test_a_host_that_leaves_ends_only_its_run_and_a_host_that_joins_runs_it_again(
    network: Network, tmp_path: Path
) -> None:
    hosts = network.add(4)
    address = network.cluster(1, 1, 1, 1, env=PATH | LOST_SOON)
    search = ("--search", "--scheduler", "none", "--metric", "number", "--set", "number", *"123456")
    sweep = Sweep(hosts[0], tmp_path, *calls("alone", tmp_path), *search)
    for host in hosts:
        sweep.has_begun(f"began-*-{host.name}")
    (mark,) = tmp_path.glob("began-*-host-4")
    number = mark.name.split("-")[1]
    hosts[3].kill()
    (fifth,) = network.add()
    fifth.ray_join(address, num_cpus=1, env=PATH | LOST_SOON)
    sweep.has_begun(f"began-{number}-host-5")
    (tmp_path / "go").touch()
    assert sweep.ends() == 0, sweep.process.printed()
    attempts = {str(row["config"]["number"]): row.get("attempts", 1) for row in sweep.rows().values()}
    assert attempts == {name: 1 + (name == number) for name in "123456"}
    assert all(row["outcome"] == "ok" for row in sweep.rows().values())


def test_a_machine_that_cannot_prepare_its_data_is_named_and_released_while_the_sweep_goes_on(
    network: Network, tmp_path: Path
) -> None:
    first, second = network.add(2)
    for host in (first, second):
        host.run(["touch", "/tmp/data"], check=True)
    address = network.cluster(1, 2, env=PATH | LOST_SOON)
    flags = ("--model", "tests.failing:slow_on_request", "--dataset", "tests.multihost.waiting:data_of_the_machine")
    search = ("--search", "--scheduler", "none", "--batch-per-rank", "4", "8", "--epochs", "4")
    sweep = Sweep(first, tmp_path, *flags, *search, "--repeats", "3")
    sweep.wait_for(lambda: "[1/6]" in sweep.process.printed(), within_s=400)
    (tmp_path / "slow").touch()  # no run ends for minutes, until the file is gone
    second.kill()
    sweep.wait_for(lambda: "host-2 has left" in sweep.process.printed())
    second.revive()
    second.ray_join(address, num_cpus=2, env=PATH | LOST_SOON)
    sweep.wait_for(lambda: "host-2 is left out" in sweep.process.printed())

    # The second rank waits for the first one, and ends only because the machine is released.
    sweep.wait_for(lambda: "ray::RayTrainWorker" not in second.run(["ps", "-eo", "args"]).stdout)
    (tmp_path / "slow").unlink()
    assert sweep.ends() == 0, sweep.process.printed()
    assert {row["outcome"] for row in sweep.rows().values()} == {"ok"}
    assert len(sweep.rows()) == 6
    assert "host-2 is there: 2 ranks start on it" in sweep.process.printed()
    lines = [line for line in sweep.process.printed().splitlines() if "host-2 is left out" in line]
    assert len(lines) == 1, lines
    assert "A rank on host-2 could not start" in lines[0]
    assert "this machine has no data" in lines[0]


def test_a_lost_head_ends_the_sweep_and_a_second_sweep_runs_the_rest(network: Network, tmp_path: Path) -> None:
    first, second = network.add(2)
    network.cluster(1, 1, env=PATH | LOST_SOON)
    spread = ("--machines", "1", "2", "--ranks-per-machine", "1", "--repeats", "2")
    sweep = Sweep(second, tmp_path, *calls("together", tmp_path), *spread, "--restarts", "1")
    sweep.has_begun("began-0")
    first.kill()
    assert sweep.ends() == 75, sweep.process.printed()
    before = sweep.rows()
    assert "the same command runs the others" in sweep.process.printed()
    assert "Traceback" not in sweep.process.printed()
    for number in (0, 1):
        (tmp_path / f"go-{number}").touch()
    first.revive()
    second.revive()
    network.cluster(1, 1, env=PATH | LOST_SOON)
    sweep = Sweep(second, tmp_path, *calls("together", tmp_path), *spread)
    assert sweep.ends() == 0, sweep.process.printed()
    rows = sweep.rows()
    assert len(rows) == 4
    assert {row["outcome"] for row in rows.values()} == {"ok"}
    assert all(rows[run_id] == row for run_id, row in before.items() if row["outcome"] == "ok")
