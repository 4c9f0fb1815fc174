from __future__ import annotations

from typing import Any

import pytest
import torch

from dmls_ray.launchers.inline import run_inline
from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.compat import compile_counters
from dmls_ray.training.ddp import compile_mode
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer
from tests.training.test_engine import UNEVEN


def config(**changes: Any) -> TrialConfig:
    base = {"model": "digits_convnet", "batch_per_rank": 16, "dataset": UNEVEN, "epochs": 2, "batch_norm": "on"}
    return TrialConfig(**{**base, "device": "cpu", "compile": "default", **changes})


def losses(result: RankResult) -> list[float]:
    return [epoch["test_loss"] for epoch in result.run["epochs"]]


@pytest.mark.slow
def test_a_compiled_model_learns_what_the_eager_one_does_and_is_compiled_in_set_up() -> None:
    def recompiled(trial: TrialConfig, rank: Any, emit: Any) -> dict[str, Any]:
        made = rank_trainer(trial, rank)
        stats = compile_counters()["stats"]
        before = stats["unique_graphs"]
        outcome = made.run(emit)
        return {**made.result(outcome), "later": stats["unique_graphs"] - before}

    compiled, eager = run_inline(config(), train=recompiled), run_inline(config(compile="off"))
    assert compiled.outcome == "ok", compiled.traceback
    assert losses(compiled) == pytest.approx(losses(eager), rel=1e-3)
    assert compiled.values["later"] == 0, "no shape is left for a timed step to compile"
    run = compiled.run
    assert 0 < run["compile_s"] <= compiled.values["setup_s"]
    assert run["compile_cache"] in ("cold", "warm", "mixed")
    again = run_inline(config())
    assert again.run["compile_cache"] == "warm"
    assert losses(again) == losses(compiled)


@pytest.mark.slow
def test_the_thorough_mode_learns_what_the_eager_one_does() -> None:
    thorough, eager = (run_inline(config(compile=mode, epochs=1)) for mode in ("max-autotune", "off"))
    assert thorough.outcome == "ok", thorough.traceback
    assert losses(thorough) == pytest.approx(losses(eager), rel=1e-3)


@pytest.mark.parametrize(
    ("device", "accum_steps", "mode"),
    [("cuda", 1, "max-autotune"), ("cuda", 2, "max-autotune-no-cudagraphs"), ("cpu", 2, "max-autotune")],
)
def test_gradients_that_accumulate_on_a_gpu_lie_in_no_cuda_graph(device: str, accum_steps: int, mode: str) -> None:
    trial = config(compile="max-autotune", accum_steps=accum_steps)
    assert compile_mode(trial, torch.device(device)) == mode
    assert compile_mode(trial.replace(compile="default"), torch.device(device)) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("accum_steps", [1, 2])
@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_a_compiled_model_learns_what_the_eager_one_does_on_a_gpu(mode: str, accum_steps: int) -> None:
    trial = config(device="cuda", accum_steps=accum_steps)
    compiled, eager = (run_inline(trial.replace(compile=name)) for name in (mode, "off"))
    assert compiled.outcome == "ok", compiled.traceback
    assert losses(compiled) == pytest.approx(losses(eager), rel=1e-2)


@pytest.mark.slow
def test_a_compiled_model_trains_under_ddp() -> None:
    compiled, eager = (run_spawned(config(world_size=2, compile=mode)) for mode in ("default", "off"))
    assert [item.outcome for item in compiled] == ["ok", "ok"], compiled[0].traceback
    assert losses(compiled[0]) == pytest.approx(losses(eager[0]), rel=1e-3)


def test_without_a_compiler_a_run_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    result = run_inline(config())
    assert result.outcome == "skipped"
    assert "compile=default needs a C++ compiler" in result.reason
