"""What the benchmarks share: what ranks return, numbers with their spread, and tables with the machine."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.provenance import describe_versions, machine_facts
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import TrainFunction
from tests.new_processes import run_spawned


def run_ranks(config: RuntimeConfig, train: TrainFunction | None = None) -> list[RankResult]:
    """The results of all ranks, each a new process.

    Raises:
        SystemExit: a rank failed; with its traceback.
    """
    results = run_spawned(config, train=train)
    check(results)
    return results


def check(results: Sequence[RankResult]) -> None:
    """End the benchmark with the traceback of a rank that failed.

    Raises:
        SystemExit: a rank failed.
    """
    for result in results:
        if result.outcome != "ok":
            raise SystemExit(result.traceback)


def returned_by(config: RuntimeConfig, train: TrainFunction) -> list[dict[str, Any]]:
    """What a training function returned on each rank as `returning` makes it."""
    return [result.run.reported["returned"] for result in run_ranks(config, train)]


def with_range(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the smallest and the largest value: `2.35 [1.90, 2.71]`."""
    ends = f" [{min(values):,.{digits}f}, {max(values):,.{digits}f}]" if len(values) > 1 else ""
    return f"{statistics.median(values):,.{digits}f}{ends}"


def with_interval(ratios: Sequence[float], digits: int = 2) -> str:
    """The geometric mean and its 95% interval, from three values on: `0.94 [0.92, 0.96]`."""
    mean = estimate(ratios, "ratio")
    ends = "" if mean.low is None else f" [{mean.low:.{digits}f}, {mean.high:.{digits}f}]"
    return f"{mean.centre:.{digits}f}{ends}"


def json_of(words: Sequence[str], folder: Path) -> dict[str, Any]:
    """What a command of dmls-ray writes as JSON, called in a folder.

    Raises:
        ValueError: it wrote none.
    """
    command = [sys.executable, "-m", "dmls_ray", *words, "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows as a table; a cell that a row lacks is empty."""
    print(markdown(pd.DataFrame(rows).fillna("")), flush=True)


def machine(*libraries: str) -> str:
    """Processor, cores, GPUs and versions: `AMD EPYC, 2 cores; torch 2.14.1`."""
    described, versions = machine_facts(), describe_versions()
    parts = [described["cpu"], f"{described['cores']} cores", *described["gpus"]]
    return f"{', '.join(parts)}; {', '.join(f'{name} {versions[name]}' for name in libraries)}"
