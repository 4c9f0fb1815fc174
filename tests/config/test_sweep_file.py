"""A sweep as a file: what it says is read as values, and written back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.config.axes import Largest, Range, checked_axes, read_written
from dmls_ray.config.options import Options
from dmls_ray.config.sweep_file import read_sweep_file, sweep_file_text
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.workload import ClassificationWorkload

TEXT = """
script = "train.py"
args = ["--steps", 3]
stall_timeout = "none"
within = "2%"

[axes]
lr = {low = 1e-4, high = 0.1, log = true}
batch-per-rank = [16, "max:0.5"]
clip_norm = [1.0, "none"]

[env]
THREADS = [1, 2]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(TEXT)
    return path


def test_a_file_has_values_and_none_stands_for_no_value(file: Path) -> None:
    asked, what = read_sweep_file(str(file))
    assert (what.train, what.arguments) == ("train.py", ["--steps", "3"])
    assert what.env == {"THREADS": ["1", "2"]}
    assert Options(**asked.options) == Options(stall_timeout=None, within=0.02)
    assert checked_axes(asked.axes, ClassificationWorkload().schema(), read_written) == {
        "lr": Range(1e-4, 0.1, log=True), "batch_per_rank": (16, Largest(0.5)), "clip_norm": (1.0, None)
    }  # fmt: skip


def test_what_was_asked_is_read_from_the_file_that_was_written(file: Path) -> None:
    axes = {"lr": Range(0.1, 1.0), "sizes": [(1, 2), (3,)], "text": '"a" \\ \n', "mode": ["none", None]}
    described = {"script": "a.py", "args": [], "share": ["data", "part.py"], "axes": axes, "variants": [{}, {"a b": 1}]}
    file.write_text(sweep_file_text(described, Options(run_timeout=60, address="auto"), out="out"))
    asked, what = read_sweep_file(str(file))
    assert (what.train, what.share) == ("a.py", ["data", "part.py"])
    assert asked.axes == {**axes, "sizes": [[1, 2], [3]], "mode": ["none", "none"]}
    assert asked.variants == [{}, {"a b": 1}]
    assert asked.options == {"run_timeout": 60.0, "out": "out"}


def test_a_range_without_two_numbers_is_refused_by_the_name_of_its_key(file: Path) -> None:
    file.write_text('script = "a.py"\n[axes]\nlr = {low = 1}\n')
    with pytest.raises(ConfigError, match="the range of lr from 1 to None needs two numbers"):
        read_sweep_file(str(file))
