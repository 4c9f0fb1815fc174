"""What is said of the runs of a script before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dmls_ray.workloads.script.workload import ScriptWorkload


@pytest.mark.parametrize(
    ("given", "is_said"),
    [({}, True), ({"threads_per_rank": 2}, False), ({"OMP_NUM_THREADS": 2}, False)],
    ids=["neither", "--threads-per-rank", "--env"],
)
def test_a_number_of_threads_that_is_exported_and_not_taken_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], *, is_said: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n", encoding="utf-8")
    variables = {name: "2" for name in given if name.isupper()}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    workload = ScriptWorkload(str(script), variables=variables)
    said: list[str] = []
    workload.prepare([workload.schema().make(seed_flag="none", **given)], said.append)
    assert [("--threads-per-rank 3" in line) for line in said] == [True] * is_said
