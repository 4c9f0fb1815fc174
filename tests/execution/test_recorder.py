from __future__ import annotations

import os
from pathlib import Path

import pytest

from dmls_ray.config.options import Options
from dmls_ray.execution import recorder as recorder_module
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.recorder import Recorder, describe_session
from dmls_ray.records.codec import check_sweep_file
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult, RunFinished, RunStarted, Verdict
from dmls_ray.storage.folder import read_sweep, write_sweep
from dmls_ray.workloads.registry import workload


@pytest.mark.parametrize(
    ("name", "axes"),
    [("classification", {"world_size": 1, "batch_per_rank": 16}), ("grayscale", {"implementation": ["numpy"]})],
)
def test_a_record_names_its_workload(name: str, axes: dict[str, object]) -> None:
    plan = make_plan(axes, schema=workload(name).schema())
    record = Recorder(plan, Options(), workload(name), session="").skipped(plan.runs[0])
    assert record.workload == name


@pytest.mark.parametrize(
    ("values", "clock", "overheads"),
    [
        # The time of instruments is no overhead.
        ({"total_s": 6.0, "instruments_s": 3.5}, [100.0, 110.0], [0.5]),
        # The driver learns of the first start late, which makes no negative time.
        ({"total_s": 1.0}, [100.0, 100.9, 102.0], [None, 0.1]),
    ],
)
def test_overhead_is_the_time_between_two_ends_that_no_run_took(
    values: dict[str, float], clock: list[float], overheads: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = workload("classification")
    plan = make_plan({"world_size": 1, "batch_per_rank": 16}, repeats=len(overheads), schema=chosen.schema())
    recorder = Recorder(plan, Options(), chosen, session="")
    monkeypatch.setattr(recorder_module.time, "monotonic", iter(clock).__next__)
    results = (RankResult(rank=0, values=values),)
    finished = RunFinished(verdict=Verdict(outcome=Outcome.OK), attempts=1, results=results)
    for run, overhead_s in zip(plan.runs, overheads, strict=True):
        recorder.started(run, RunStarted(attempt=1))
        metrics = recorder.finished(run, finished).metrics
        assert metrics.get("overhead_s") == pytest.approx(overhead_s)
        assert metrics.items() >= values.items()


def test_a_session_names_the_environment_also_where_a_value_is_no_utf_8(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NCCL_ALGO", os.fsdecode(b"Ring\xff"))
    chosen = workload("classification")
    plan = make_plan({"batch_per_rank": 16}, schema=chosen.schema())
    described = describe_session(plan, Options())
    check_sweep_file({"sessions": [described]})
    write_sweep(tmp_path, {"sessions": [described]})
    assert read_sweep(tmp_path)["sessions"][0]["environment"]["NCCL_ALGO"] == "Ring\udcff"
