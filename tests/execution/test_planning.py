"""What can be planned, and how a plan is written as a file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmls_ray.config.options import Options
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.config.sweep_file import sweep_file_text
from dmls_ray.execution.planning import plan_of
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload


class Plain(Workload):
    """A workload without accuracies."""

    name, config = "plain", RuntimeConfig


@pytest.mark.parametrize(
    ("chosen", "axes", "options", "message"),
    [
        (Plain(), {"seed": [1]}, {"aim": "accuracy"}, "--aim accuracy needs test accuracies, and plain has none"),
        (None, {"batch_per_rank": [16, 32]}, {"aim": "time-to-accuracy"}, "add --target-accuracy 0.9, for example"),
        (
            None, {"batch_per_rank": [16], "target_accuracy": [0.2, 0.3]}, {"aim": "time-to-accuracy"},
            "--target-accuracy 0.2 0.3: --aim time-to-accuracy needs one target; give",
        ),
    ],
)  # fmt: skip
def test_what_no_run_can_have_is_refused_before_anything_starts(
    chosen: Workload | None, axes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(axes, Options(race="aim" in options, **options), chosen or workload("classification"))


def test_axes_of_python_are_written_as_a_file_can_have_them(tmp_path: Path) -> None:
    axes = {"batch_per_rank": range(16, 64, 16), "lr": np.geomspace(0.001, 0.1, 3), "epochs": np.int64(2)}
    options = Options(repeats=2)
    plan, _ = plan_of(axes, options, workload("classification"))
    assert plan.asked is not None
    file = tmp_path / "sweep.toml"
    file.write_text(sweep_file_text(plan.asked, options))
    assert tomllib.loads(file.read_text())["axes"] == {
        "batch_per_rank": [16, 32, 48], "lr": pytest.approx([0.001, 0.01, 0.1]), "epochs": 2
    }  # fmt: skip
