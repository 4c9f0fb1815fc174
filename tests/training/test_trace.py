from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.training.trace import TRACED_STEPS, trace_name
from tests.training.test_engine import config, run_inline


def spans(path: Path) -> list[str]:
    """The names of the events of a trace."""
    with gzip.open(path, "rt") as file:
        return [event.get("name", "") for event in json.load(file)["traceEvents"]]


@pytest.mark.parametrize("changes", [{}, {"accum_steps": 2}])
def test_a_trace_has_the_parts_of_a_few_steps(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = tmp_path / "runs" / "a"
    result = run_inline(config(**changes), artifacts=ArtifactOptions(folder=str(folder), trace=True))
    assert result.outcome == "ok", result.traceback
    names = spans(folder / trace_name(0))
    steps = min(TRACED_STEPS, result.run["steps"] // len(result.run["epochs"]))
    assert names.count("dmls_ray: optimizer") == steps
    assert names.count("dmls_ray: forward") == names.count("dmls_ray: backward") >= steps
    assert any(name.startswith("aten::") for name in names)


def test_a_trace_changes_no_result_of_the_run(tmp_path: Path) -> None:
    traced = run_inline(config(), artifacts=ArtifactOptions(folder=str(tmp_path), trace=True))
    plain = run_inline(config())
    assert traced.run["epochs"][-1]["test_loss"] == plain.run["epochs"][-1]["test_loss"]
    assert traced.values["tensor_mem_mib"] == plain.values["tensor_mem_mib"]
    assert traced.run["steps"] == plain.run["steps"]


def test_without_being_asked_for_no_trace_is_written(tmp_path: Path) -> None:
    run_inline(config(), artifacts=ArtifactOptions(folder=str(tmp_path / "a")))
    assert not (tmp_path / "a").exists()
