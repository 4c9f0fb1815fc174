"""The largest value that fits into memory: which values are tried, where memory is simulated; and a real search."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.cluster.held_group import HeldGroup
from dmls_ray.config.options import Options
from dmls_ray.execution.largest import LargestFit, Probe
from dmls_ray.execution.prober import Prober
from dmls_ray.execution.supervisor import Heartbeat
from dmls_ray.execution.view import ProgressConsole, View
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import workload


class Simulated(LargestFit):
    """Runs of which each value takes so many MiB, where so many are free."""

    def __init__(self, mib: float, free: float, *, is_known: bool = True, samples: int = 10**9) -> None:
        prober = Prober(
            workload=workload("classification"),
            options=Options(out="out"),
            view=View(ProgressConsole()),
            heartbeat=Heartbeat(),
            held=HeldGroup(Options()),
        )
        super().__init__(prober, {}, "batch_per_rank")
        self.mib, self.free, self.is_known, self.samples = mib, free, is_known, samples
        self.tried: list[int] = []

    def _run(self, value: int) -> Probe:
        self.tried.append(value)
        growth = 40 + self.mib * value
        if growth > self.free:
            return Probe(value, "out of memory")
        return Probe(value, "", growth if self.is_known else None, self.free, min(value, self.samples))


@pytest.mark.parametrize("start", [1, 8, 5000])
@pytest.mark.parametrize("mib", [0.01, 1.5])
@pytest.mark.parametrize("is_known", [True, False])
def test_the_edge_is_found_within_a_tenth(start: int, mib: float, is_known: bool) -> None:
    search = Simulated(mib, 3000, is_known=is_known)
    edge = (3000 - 40) / mib
    assert 0.9 * edge < search.find(start) <= edge
    assert len(search.tried) < 30


def test_where_growth_is_known_nothing_is_started_that_does_not_fit() -> None:
    search = Simulated(1.5, 3000)
    search.find(4)
    assert max(search.tried) * 1.5 + 40 < 3000
    assert len(search.tried) < 8


def test_the_search_ends_with_the_data() -> None:
    assert 500 <= Simulated(0.001, 3000, is_known=False, samples=1000).find(10) <= 1280


def test_where_not_even_one_fits_the_reason_is_said() -> None:
    with pytest.raises(ConfigError, match="batch_per_rank max: not even 1 fits: out of memory"):
        Simulated(5000, 3000).find(4)


SCRIPT = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=20)
given = parser.parse_args()
if given.batch_size > 50:
    raise MemoryError("no memory")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(torch.randn(5000, 8), given.batch_size):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_max_is_the_largest_batch_that_fits_and_the_smallest_fast_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["sweep", "train.py", "--batch-size", "max", "--repeats", "3", "--steps", "20", "--out", "out"]
    command = [sys.executable, "-m", "dmls_ray", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    batches = {record.config["batch_size"] for record in load(tmp_path / "out").records}
    largest = max(batches)
    assert 45 <= largest <= 50
    assert batches == {largest >> halvings for halvings in range(5)}
    probes = load(tmp_path / "out" / "probes").records
    assert {record.metrics["steps"] for record in probes if record.outcome == "ok"} == {3}
    assert f"batch_size max is {largest}" in done.stdout
    assert "Smallest batch_size within 2% of the best rate:" in done.stdout
