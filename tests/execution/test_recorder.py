from __future__ import annotations

import pytest

from dmls_ray.config.options import Options
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.recorder import Recorder
from dmls_ray.workloads.registry import workload


@pytest.mark.parametrize(
    ("name", "axes"),
    [("classification", {"world_size": 1, "batch_per_rank": 16}), ("grayscale", {"implementation": ["numpy"]})],
)
def test_a_record_names_its_workload(name: str, axes: dict[str, object]) -> None:
    plan = make_plan(axes, schema=workload(name).schema())
    record = Recorder(plan, Options(), workload(name), session="").skipped(plan.runs[0])
    assert record.workload == name
