"""A workload of another package, installed with an entry point, from its flags to its report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.cli.main import main
from tests.conftest import PROJECT
from tests.workloads.conftest import Install, sweep

SOURCE = '''
"""Monte Carlo estimates of pi: a workload that another package brings."""

import random
from dataclasses import dataclass

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.metrics import Metric
from dmls_ray.records.run_events import EpochEnded, RankResult, RunResult
from dmls_ray.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class PiConfig(RuntimeConfig):
    points: int = 1000
    """Points to draw"""
    side: float = 1.0
    """Length of a side of the square"""


class PiWorkload(Workload):
    """Estimates of pi from random points."""

    name = "pi"
    config = PiConfig
    entrypoint = "PACKAGE:run"
    metrics = (
        Metric(name="points_per_s", label="points/s", kind="rate", direction="max", scope="run", format="rate"),
        Metric(name="pi_error", label="error of pi", kind="amount", direction="min", scope="run"),
    )
    throughput = ("points_per_s",)
    epoch_metrics = ("pi_error",)

    def infeasible_reason(self, config):
        return "points=13 brings bad luck; use 14." if config.points == 13 else ""


def run(config, rank, emit):
    chance = random.Random(config.seed)
    hits = 0
    for epoch in (1, 2, 3):
        hits += sum(chance.random() ** 2 + chance.random() ** 2 <= 1 for _ in range(config.points))
        error = abs(4 * hits / (epoch * config.points) - 3.141592653589793)
        emit(EpochEnded(epoch=EpochRecord(epoch=epoch, metrics={"train_loss": error, "pi_error": error})))
    run = RunResult(metrics={"points_per_s": 1e3 * config.points + config.seed})
    return RankResult(metrics={"total_s": 0.1 + config.points / 1e5}, run=run)
'''

SCRIPT = """
from dmls_ray.config.sweep_file import Preset
from dmls_ray.cli.sweep_script import main

if __name__ == "__main__":
    main(Preset(name="pi", question="Does pi get better with more points?", axis="points",
                workload="pi", axes={"points": [1000, 4000]}))
"""

PI = {"name": "pi", "workload": "pi", "axis": "points"}


@pytest.fixture
def folder(install: Install) -> Path:
    """The working folder, with the package and a script that sweeps it."""
    folder = install(SOURCE, "pi", "{package}:PiWorkload")
    (folder / "pi.py").write_text(SCRIPT)
    return folder


@pytest.mark.usefixtures("folder")
def test_its_fields_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--help", **PI) == 0
    help_text = capsys.readouterr().out
    assert "--points INT ..." in help_text
    assert "Points to draw (default: 1000)" in help_text
    assert "--model" not in help_text

    assert sweep("--points", "many", **PI) == 2
    assert "--points many: expected int." in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_its_limits_are_asked_before_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--dry-run", "--repeats", 1, "--points", 13, 1000, **PI) == 0
    plan = capsys.readouterr().out
    assert "2 runs in 1 blocks" in plan
    assert "skipped: points=13 brings bad luck; use 14." in plan

    assert sweep("--search", "--metric", "speed", "--points", 1, 2, **PI) == 2
    assert "--metric speed: unknown metric; pi reports pi_error." in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_flag_chooses_it_in_any_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--workload", "pi", "--dry-run", "--repeats", 1, "--points", 1, 2) == 0
    assert "2 runs in 1 blocks, order seed 0, into results/pi:" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_has_its_table_figures_report_and_tensorboard_and_is_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(PROJECT)])}
    words = [sys.executable, "pi.py", "--repeats", "1", "--launcher", "inline", "--device", "cpu"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search("points(/|_per_)s", done.stdout)
    assert "s/run" in done.stdout
    assert re.search(r"^points 4000 vs 1000", done.stdout, re.M), "by its throughput, points a second"
    results = folder / "results" / "pi"
    assert "error of pi" in (results / "report.html").read_text()
    assert "points_per_s" in (results / "runs.csv").read_text().splitlines()[0]
    assert list((results / "tensorboard").rglob("events*"))
    assert {record.config["workload"] for record in load(results).records} == {"pi"}
    assert sorted(record.metrics["total_s"] or 0 for record in load(results).records) == [0.11, 0.14]
    assert all(record.metrics.get("overhead_s") is not None for record in load(results).records[1:])

    runs = (results / "runs.jsonl").read_text()
    assert sweep("--points", 1000, 4000, "--repeats", 1, "--out", results, **PI) == 0
    assert (results / "runs.jsonl").read_text() == runs, "nothing is run twice"

    capsys.readouterr()
    for command in ("table", "figures"):
        with pytest.raises(SystemExit) as ended:
            main([command, str(results)])
        assert not ended.value.code
    assert re.search("points(/|_per_)s", capsys.readouterr().out)
    assert list((results / "figures").glob("*.png"))
    assert sweep("--batch-per-rank", 8, "--out", results) == 2
    assert "holds runs of pi; name another folder, or pass --fresh." in capsys.readouterr().err
