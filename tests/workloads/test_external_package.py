"""A workload of another package, installed with an entry point, from its flags to its report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.cli.main import main
from dmls_ray.cli.sweep_script import Preset
from dmls_ray.cli.sweep_script import main as sweep_main
from dmls_ray.workloads import registry
from tests.conftest import PROJECT

CONFIG = '''
"""Monte Carlo estimates of pi: a workload that another package brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.metrics import Metric
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
    entrypoint = "pi_workload.run:run"
    metrics = (
        Metric(name="points_per_s", label="points/s", kind="rate", direction="max", scope="run", format="rate"),
        Metric(name="pi_error", label="error of pi", kind="amount", direction="min", scope="run"),
    )
    throughput = "points_per_s"
    epoch_metrics = ("pi_error",)

    def infeasible_reason(self, config: RuntimeConfig) -> str:
        return "points=13 brings bad luck; use 14." if config.points == 13 else ""

    def estimate_s(self, config: RuntimeConfig) -> float | None:
        return config.points * 1e-6
'''

RUN = """
import random

from dmls_ray.records.model import EpochRecord
from dmls_ray.records.run_events import EpochEnded


def run(config, rank, emit):
    chance = random.Random(config.seed)
    hits = 0
    for epoch in (1, 2, 3):
        hits += sum(chance.random() ** 2 + chance.random() ** 2 <= 1 for _ in range(config.points))
        error = abs(4 * hits / (epoch * config.points) - 3.141592653589793)
        emit(EpochEnded(epoch=EpochRecord(epoch=epoch, metrics={"train_loss": error, "pi_error": error})))
    return {"rank": 0, "total_s": 0.1 + config.points / 1e5, "run": {"points_per_s": 1e3 * config.points + config.seed}}
"""

SCRIPT = """
from dmls_ray.cli.sweep_script import Preset, main

if __name__ == "__main__":
    main(Preset(name="pi", question="Does pi get better with more points?", axis="points",
                workload="pi", axes={"points": [1000, 4000]}))
"""

INLINE = ("--launcher", "inline", "--device", "cpu")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package and its metadata, as pip installs them."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / "pi_workload"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "workload.py").write_text(CONFIG)
    (package / "run.py").write_text(RUN)
    info = folder / "pi_workload-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pi-workload\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dmls_ray.workloads]\npi = pi_workload.workload:PiWorkload\n")
    (folder / "pi.py").write_text(SCRIPT)
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package, found by this process as well."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(site)
    registry.installed.cache_clear()
    yield site
    registry.installed.cache_clear()


def sweep_script(*words: object, workload: str = "pi", axis: str | None = "points") -> int:
    preset = Preset(name=workload, question="Why?", axis=axis, workload=workload, axes={})
    with pytest.raises(SystemExit) as ended:
        sweep_main(preset, [*map(str, words)])
    return int(ended.value.code or 0)


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("installed")
def test_its_fields_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep_script("--help") == 0
    help_text = capsys.readouterr().out
    assert "--points INT [INT ...]" in help_text
    assert "Points to draw (default: 1000)" in help_text
    assert "--model" not in help_text

    assert sweep_script("--points", "many") == 2
    assert "points=many: expected int." in capsys.readouterr().err


@pytest.mark.usefixtures("installed")
def test_its_limits_and_estimates_are_asked_before_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep_script("--dry-run", "--repeats", "1", "--points", "13", "1000", *INLINE) == 0
    plan = capsys.readouterr().out
    assert "2 runs in 1 blocks" in plan
    assert "skipped: points=13 brings bad luck; use 14." in plan
    assert "A guess of 15 s" in plan

    assert sweep_script("--mode", "search", "--metric", "speed", "--points", "1", "2") == 2
    assert "--metric speed: unknown metric; pi reports pi_error." in capsys.readouterr().err


@pytest.mark.usefixtures("installed")
def test_a_flag_chooses_it_in_any_script(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--workload", "pi", "--dry-run", "--repeats", "1", "--points", "1", "2", *INLINE)
    assert sweep_script(*words, workload="classification", axis=None) == 0
    assert "2 runs in 1 blocks, order seed 0, into results/pi:" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_has_its_table_figures_report_and_tensorboard_and_is_resumed(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(PROJECT)])}
    words = [sys.executable, "pi.py", "--repeats", "1", *INLINE]
    done = subprocess.run(words, cwd=installed, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search("points(/|_per_)s", done.stdout)
    assert "s/run" in done.stdout
    assert re.search(r"^points 4000 vs 1000", done.stdout, re.M), "by its throughput, points a second"
    folder = installed / "results" / "pi"
    assert "error of pi" in (folder / "report.html").read_text()
    assert "points_per_s" in (folder / "runs.csv").read_text().splitlines()[0]
    assert list((folder / "tensorboard").rglob("events*"))
    assert {record.config["workload"] for record in load(folder).records} == {"pi"}
    assert sorted(record.metrics["total_s"] or 0 for record in load(folder).records) == [0.11, 0.14]
    assert all(record.metrics.get("overhead_s") is not None for record in load(folder).records[1:])

    runs = (folder / "runs.jsonl").read_text()
    assert sweep_script("--points", "1000", "4000", "--repeats", "1", "--out", folder, *INLINE) == 0
    assert (folder / "runs.jsonl").read_text() == runs, "nothing is run twice"

    assert command("table", folder) == 0
    assert re.search("points(/|_per_)s", capsys.readouterr().out)
    assert command("figures", folder) == 0
    assert list((folder / "figures").glob("*.png"))
    assert sweep_script("--batch-per-rank", "8", "--out", folder, workload="classification", axis=None) == 2
    assert "holds runs of pi; name another folder, or pass --fresh." in capsys.readouterr().err
