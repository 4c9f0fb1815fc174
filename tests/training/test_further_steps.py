"""The trace of a few steps after the training, and the memory of one by kind."""

from __future__ import annotations

import functools
import gc
import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray.records.run_events import RankResult
from dmls_ray.training import further_steps, run_training
from dmls_ray.training.compat import Recording, recorded_allocations
from dmls_ray.training.further_steps import (
    FORWARD,
    KINDS,
    TRACED_STEPS,
    UPDATE,
    measure_tensors,
    peak_by_kind,
    trace_name,
)
from dmls_ray.training.memory import MIB
from dmls_ray.training.rank import ArtifactOptions, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer
from tests.new_processes import run_inline, run_ranks
from tests.run_results import returning

IMAGES = "synthetic:shape=1x16x16,classes=4,train=256,test=16"


def config(**changes: Any) -> TrialConfig:
    base = {"dataset": IMAGES, "batch_per_rank": 16, "epochs": 1, "device": "cpu", "model": "mnist_convnet"}
    return TrialConfig(**{**base, **changes})


def tensors(result: RankResult) -> dict[str, float]:
    """The memory of the tensors, all and by kind."""
    assert not result.no_tensor_mem
    return {kind: result.metrics[f"{kind}_mem_mib"] for kind in ("tensor", *KINDS)}


def test_runs_of_one_configuration_need_equal_memory_and_its_kinds_add_up() -> None:
    trial = config(optimizer="adam", accum_steps=2)
    first, again, reseeded = (tensors(run_inline(item)) for item in (trial, trial, trial.replace(seed=7)))
    assert first == again == reseeded
    assert first["tensor"] == pytest.approx(sum(first[kind] for kind in KINDS), rel=1e-12)
    assert first["optimizer"] == pytest.approx(2 * first["parameter"], rel=0.01), "Adam keeps two values of each"


@pytest.mark.parametrize("model", ["convnet", "digits_convnet", "mnist_convnet", "simplecnn"])
def test_a_larger_batch_needs_more_memory(model: str) -> None:
    small, large = (tensors(run_inline(config(model=model, batch_per_rank=batch))) for batch in (8, 32))
    assert large["tensor"] > small["tensor"]
    assert large["activation"] > small["activation"]
    assert large["parameter"] == small["parameter"]


def test_the_memory_of_a_model_that_looks_at_its_images_is_not_that_of_blank_ones() -> None:
    measured = tensors(run_inline(config(model="tests.training.probes:masked", batch_per_rank=64)))
    # 64 samples of 256 pixels, half of which have 64 values.
    assert measured["activation"] > 0.4 * 64 * 256 * 64 * 4 / MIB


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "amp-bf16"},
        {"precision": "amp-fp16"},
        {"l1": 1e-4, "clip_norm": 1.0, "optimizer": "rmsprop", "lr_schedule": "one-cycle"},
        {"accum_steps": 2, "noise_scale": True},
        {"loader": "dataloader", "loader_workers": 0},
        {"batch_per_rank": 256},
        pytest.param({"compile": "default"}, marks=pytest.mark.slow),
        pytest.param({"quantization": "qat"}, marks=pytest.mark.slow),
    ],
)
def test_the_memory_of_every_kind_of_training_is_measured(changes: dict[str, Any]) -> None:
    measured = [tensors(run_inline(config(**changes))) for _ in range(2)]
    assert measured[0] == measured[1]
    assert measured[0]["activation"] > 0


def real_step(trial: TrialConfig, rank: RankInfo) -> dict[str, Any]:
    """The memory of a step that reduces gradients, and that of the step alone."""
    trainer = rank_trainer(trial, rank)
    trainer.run(lambda event: None)
    model, ddp, step = trainer.model, trainer.ddp_model, trainer.optimizer_step
    before = further_steps._bytes_by_kind(
        trainer.device, parameter=model.parameters(), optimizer=step.state_tensors(), other=model.buffers()
    )
    before["gradient"] += ddp.bucket_bytes()
    model.train()
    with recorded_allocations(trainer.device) as recording:
        for last in [False] * (trial.accum_steps - 1) + [True]:
            batch = trainer.task.example_batch(trial.batch_per_rank or 0)
            with ddp.reducing(last):
                with torch.profiler.record_function(FORWARD):
                    loss = trainer.task.loss(trainer.task.predict(ddp.forward, batch), batch)
                step.backward(loss)
        gradients = {further_steps._address(gradient) for gradient in further_steps._gradients(model)}
        with torch.profiler.record_function(UPDATE):
            step.step()
    state = {further_steps._address(tensor) for tensor in step.state_tensors()}
    real = sum(peak_by_kind(recording, before, gradients, state).values()) / MIB
    alone = RankResult()
    measure_tensors(trainer, alone)
    return {"real": real, **tensors(alone)}


def real_steps(trials: list[TrialConfig], trial: TrialConfig, rank: RankInfo, emit: Any) -> RankResult:
    return returning({"each": [real_step(item, rank) for item in trials]})


def test_on_two_ranks_the_step_of_one_rank_needs_what_the_step_of_both_needs() -> None:
    base = config(world_size=2, batch_norm="on", dataset="synthetic:shape=1x16x16,classes=4,train=256,test=16")
    trials = [base] + [
        base.replace(**changes)
        for changes in (
            {"zero_redundancy": True}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"accum_steps": 2},
        )
    ]  # fmt: skip
    ranks = run_ranks(trials[0], train=functools.partial(real_steps, trials))
    assert [item.outcome for item in ranks] == ["ok"] * 2, ranks[0].traceback
    for rank in ranks:
        each = rank.run.reported["returned"]["each"]
        for trial, measured in zip(trials, each, strict=True):
            assert measured["tensor"] == pytest.approx(measured["real"], abs=512 / MIB), trial
        plain, zero, views, *_ = each
        assert zero["optimizer"] < 0.8 * plain["optimizer"], "ZeRO distributes the state"
        assert views["gradient"] < plain["gradient"], "views of the buckets need no second copy"


def test_the_step_leaves_the_model_and_the_random_numbers_as_they_are() -> None:
    trainer = rank_trainer(config(batch_norm="on", dropout=0.5), RankInfo())
    trainer.run(lambda event: None)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    generator = torch.get_rng_state()
    result = RankResult()
    measure_tensors(trainer, result)
    tensors(result)
    assert all(torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())


def test_a_step_that_fails_leaves_the_run_ok_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def failing(device: torch.device) -> Iterator[Recording]:
        raise RuntimeError("no profile\nhere")
        yield Recording()

    monkeypatch.setattr(further_steps, "recorded_allocations", failing)
    result = run_inline(config())
    assert result.outcome == "ok"
    assert result.values["no_tensor_mem"] == "the step that measures it failed (RuntimeError: no profile"
    assert "tensor_mem_mib" not in result.values


def test_a_model_that_communicates_in_its_forward_pass_is_not_measured_alone() -> None:
    trainer = rank_trainer(config(), RankInfo())
    trainer.model.add_module("synchronised", torch.nn.SyncBatchNorm(4))
    result = RankResult()
    measure_tensors(trainer, result)
    assert result.no_tensor_mem == "SyncBatchNorm communicates in the forward pass, so no rank can step alone"
    assert result.metrics == {}


def test_the_step_is_in_no_time_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(trainer: Any, result: RankResult) -> None:
        time.sleep(0.5)
        measure_tensors(trainer, result)

    monkeypatch.setattr(run_training, "measure_tensors", slow)
    began = time.perf_counter()
    values = run_inline(config()).values
    assert values["instruments_s"] >= 0.5
    assert values["total_s"] <= time.perf_counter() - began - 0.5
    assert sum(values[name] for name in ("setup_s", "train_s", "eval_s")) <= values["total_s"]


def test_the_peak_is_that_of_all_kinds_together() -> None:
    # Times, addresses and bytes: a batch, what the pass keeps and what it needs in passing, a gradient, the update.
    recording = Recording(
        allocations=[
            (1, 0xB, 10), (3, 0xA, 100), (4, 0xC, 40), (5, 0xC, -40),
            (8, 0xD, 30), (9, 0xA, -100), (10, 0xE, 25), (11, 0xE, -25),
            (21, 0xF, 7), (22, 0xB, -10), (23, 0x1, -99),
        ],
        spans=[(FORWARD, 2, 6), ("aten::add", 3, 4), (UPDATE, 20, 25)],
    )  # fmt: skip
    before = {"parameter": 50, "gradient": 0, "optimizer": 100, "activation": 0, "other": 0}
    sizes = peak_by_kind(recording, before, gradients={0xD}, optimizer_state={0xF})
    assert sizes == {"parameter": 50, "gradient": 0, "optimizer": 100, "activation": 100, "other": 50}
    large = Recording(allocations=[*recording.allocations[:4], (8, 0xD, 300), (21, 0xF, 7)], spans=recording.spans)
    assert peak_by_kind(large, before, gradients={0xD}, optimizer_state={0xF}) == {
        "parameter": 50, "gradient": 300, "optimizer": 107, "activation": 100, "other": 10
    }  # fmt: skip


def test_memory_that_was_freed_unseen_ends_where_its_address_is_used_again() -> None:
    recording = Recording(
        allocations=[(1, 0xA, 100), (5, 0xA, 60), (6, 0xA, -60), (7, 0xB, 30)], spans=[(UPDATE, 8, 9)]
    )
    assert sum(peak_by_kind(recording, dict.fromkeys(KINDS, 0), set(), set()).values()) == 100


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("model", ["mnist_convnet", "convnet"])
def test_on_a_gpu_the_tensors_need_what_the_allocator_counts(model: str) -> None:
    for batch in (16, 128):
        result = run_inline(config(model=model, batch_per_rank=batch, device="cuda"))
        assert result.outcome == "ok", result.traceback
        gc.collect()
        workspaces = torch.cuda.memory_allocated() / MIB  # cuBLAS keeps 65 MiB on a Hopper GPU
        # The allocator also counts images of several passes, and what it rounds up.
        expected = result.values["device_mem_mib"] - workspaces
        assert tensors(result)["tensor"] == pytest.approx(expected, rel=0.1, abs=32)


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
    steps = min(TRACED_STEPS, result.run.metrics["steps"] // len(result.run.epochs))
    assert names.count("dmls_ray: optimizer") == steps
    assert names.count("dmls_ray: forward") == names.count("dmls_ray: backward") >= steps
    assert any(name.startswith("aten::") for name in names)


def test_a_trace_changes_no_result_of_the_run(tmp_path: Path) -> None:
    traced = run_inline(config(), artifacts=ArtifactOptions(folder=str(tmp_path), trace=True))
    plain = run_inline(config())
    assert traced.run.epochs[-1].metrics["test_loss"] == plain.run.epochs[-1].metrics["test_loss"]
    assert traced.values["tensor_mem_mib"] == plain.values["tensor_mem_mib"]
    assert traced.run.metrics["steps"] == plain.run.metrics["steps"]


def test_without_being_asked_for_no_trace_is_written(tmp_path: Path) -> None:
    run_inline(config(), artifacts=ArtifactOptions(folder=str(tmp_path / "a")))
    assert not (tmp_path / "a").exists()
