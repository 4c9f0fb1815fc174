"""TFLOP/s and utilization of built-in models, functions and ranks, against counts by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.flop_counter import FlopCounter
from dmls_ray.training.measured_product import ProductRate, rate_path
from dmls_ray.training.model_utilization import add_utilization
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.new_processes import run_inline
from tests.training.counted_models import GPT, gpt_operations, residual_network, residual_operations
from tests.training.test_further_steps import config
from tests.workloads.user_function.test_rank_run import run_in_place

BATCH = 4
CPU = torch.device("cpu")


def trains(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Steps of a model in one of several ways."""
    how = config["how"]
    model = residual_network() if how == "residual" else GPT()
    forward: Any = model
    if how == "ddp":
        forward = DistributedDataParallel(model)
    elif how == "fsdp2":
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    elif how == "checkpoint":
        blocks = model.blocks.forward
        model.blocks.forward = lambda x: checkpoint(blocks, x, use_reentrant=False)
    elif how == "compiled":
        forward = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(12):
        batch = BATCH * (1 + number % 2) if how == "uneven" else BATCH
        if how == "without a model":
            loss = (torch.ones(batch * (1 + number), 16) @ model.head.weight[:, :16].T).square().mean()
        elif how == "other lengths":
            length = GPT.length // (1 + number % 2)
            tokens = torch.zeros(BATCH * GPT.length // length, length, dtype=torch.long)
            loss = cross_entropy(forward(tokens).flatten(0, 1), tokens.flatten())
        elif how == "residual":
            loss = forward(torch.ones(batch, 3, 16, 16)).square().mean()
        else:
            tokens = torch.zeros(batch, GPT.length, dtype=torch.long)
            loss = cross_entropy(forward(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def results_of(how: str, world_size: int = 1) -> list[RankResult]:
    schema = user_function_schema(trains, {"how": how})
    results = run_in_place(schema.make(how=how, world_size=world_size))
    assert [result.outcome.value for result in results] == ["ok"] * world_size, results[0].traceback
    return results


@pytest.mark.parametrize(
    ("how", "world_size"), [("transformer", 1), ("residual", 1), ("checkpoint", 1), ("ddp", 2), ("fsdp2", 2)]
)
def test_the_utilization_of_a_function_agrees_with_the_count_by_hand(how: str, world_size: int) -> None:
    by_hand = residual_operations(BATCH) if how == "residual" else gpt_operations(BATCH)
    for result in results_of(how, world_size):
        assert "no_mfu" not in result.run.facts
        metrics = result.metrics
        per_s = by_hand / (metrics["step_ms_mean"] / 1e3)
        assert metrics["tflop_per_step"] * 1e12 == pytest.approx(by_hand, rel=0.02)
        assert metrics["tflop_per_s"] * 1e12 == pytest.approx(per_s, rel=0.02)
        assert metrics["mfu"] == pytest.approx(per_s / (metrics["product_tflop_per_s"] * 1e12), rel=0.02)
        least = 1.25 if how == "checkpoint" else 1.0
        assert metrics["hfu"] >= least * metrics["mfu"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("compiled", "compile"),
        ("uneven", "steps differ in size"),
        ("other lengths", "inputs differ in shape"),
        ("without a model", "no call of a model"),
    ],
)
def test_a_function_whose_operations_are_not_known_says_why(how: str, reason: str) -> None:
    (result,) = results_of(how)
    assert reason in result.run.facts["no_mfu"]
    assert "mfu" not in result.metrics


def convolutional(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A model of 128 x 16 x 16 products a sample in its first layer."""
    channels, height, width = shape
    return nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * height * width, classes))


@pytest.mark.parametrize(
    "changes",
    [{}, {"accum_steps": 2}, {"compile": "default"}, {"batch_per_rank": 24}],
    ids=["plain", "accumulated", "compiled", "uneven"],
)
def test_the_operations_of_a_built_in_training_agree_with_the_count_by_hand(changes: dict[str, Any]) -> None:
    trial = config(model="tests.training.test_model_utilization:convolutional", **changes)
    result = run_inline(trial)
    assert result.outcome.value == "ok", result.traceback
    # The image needs no gradient.
    sample = 2 * 256 * 8 * 9 * 2 + 2 * 8 * 256 * 4 * 3
    samples = trial.batch_per_rank * trial.accum_steps
    assert result.metrics["tflop_per_step"] * 1e12 == pytest.approx(sample * samples, rel=0.02)
    counted_s = result.metrics["train_s"] if "train_s" in result.metrics else result.epochs[0].metrics["train_s"]
    per_s = result.run.epochs[0].metrics["images"] * sample / counted_s
    assert result.metrics["tflop_per_s"] * 1e12 == pytest.approx(per_s, rel=0.05)


def counted() -> FlopCounter:
    with FlopCounter() as counter:
        torch.ones(64, 64) @ torch.ones(64, 64)
    return counter


def test_more_than_all_of_a_product_is_an_error_of_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))
    result = RankResult()
    add_utilization(result, counted(), 1e-9, CPU)
    assert "mfu" not in result.metrics
    assert result.metrics["tflop_per_s"] > result.metrics["product_tflop_per_s"]
    assert "account is wrong" in result.run.facts["no_mfu"]


def test_a_kept_product_that_contradicts_a_step_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))
    path = rate_path(CPU, torch.float32)
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(ProductRate(flop_per_s=1.0, spread=0.0)))
    result = RankResult()
    add_utilization(result, counted(), 1e3, CPU)
    assert 0 < result.metrics["mfu"] < 1
    assert "no_mfu" not in result.run.facts


def test_a_step_without_products_has_no_utilization() -> None:
    result = RankResult()
    add_utilization(result, FlopCounter(), 1.0, CPU)
    assert not result.metrics
    assert "no matrix product" in result.run.facts["no_mfu"]


def test_a_device_that_cannot_multiply_in_a_format_has_no_utilization() -> None:
    counter = counted()
    counter.hardware[torch.bool] = 1
    result = RankResult()
    add_utilization(result, counter, 1.0, CPU)
    assert "could not be measured" in result.run.facts["no_mfu"]
