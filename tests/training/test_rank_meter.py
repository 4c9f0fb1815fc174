"""What a rank measures is the same, whether it trains a model, calls a function or runs a script."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.rank_meter import RankMeter
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.script.workload import ScriptWorkload
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.conftest import SMALL
from tests.new_processes import run_inline
from tests.workloads.script.conftest import BEGIN, LOOP, Runner

COMMON = {
    "setup_s", "total_s", "instruments_s", "start_mem_mib", "free_mem_mib", "peak_mem_mib", "host_mem_mib",
    "cpu_cores", "busy_cores", "idle_cores", "step_ms_p50", "step_ms_p95", "data_wait_ms", "optimizer_ms", "rest_ms",
}  # fmt: skip


def train(config: dict[str, Any], rank: Any, emit: Any) -> None:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()


def of_model(folder: Path) -> RankResult:
    return run_inline(TrialConfig(dataset=SMALL, batch_per_rank=8, epochs=2, device="cpu"))


def of_function(folder: Path) -> RankResult:
    return run_inline(user_function_schema(train, ["x"]).make(x=1, device="cpu"), train=run_user_function)


def of_script(folder: Path) -> RankResult:
    with contextlib.closing(ForkServer("dmls_ray.training.rank:preload", ScriptWorkload.entrypoint)) as server:
        return Runner([server], folder).one(BEGIN + LOOP)


@pytest.mark.parametrize("run", [of_model, of_function, of_script])
def test_each_kind_of_run_measures_the_same(run: Any, tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.outcome == "ok", result.traceback
    assert result.metrics.keys() >= COMMON
    assert len(result.step_ms_quantiles) == 10
    assert result.run.device == "cpu"
    assert result.run.metrics["steps"] >= 12
    assert result.pid


def test_a_result_has_no_times_of_steps_that_are_in_doubt() -> None:
    with RankMeter(RankInfo()) as meter:
        meter.begin_memory()
        timer = meter.time_steps(warmup_steps=0)
        timer.begin_epoch()
        timer.step()
        timer.end_epoch()
    assert meter.read().metrics.keys() >= {"total_s", "step_ms_p50"}
    doubtful = meter.read(with_steps=False)
    assert "step_ms_p50" not in doubtful.metrics
    assert doubtful.step_ms_quantiles == []
