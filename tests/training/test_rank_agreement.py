from __future__ import annotations

import functools
import itertools
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.records.aggregate import independence_of
from dmls_ray.records.model import RankRecord
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_agreement import parameter_sketch
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.conftest import SMALL
from tests.new_processes import run_ranks
from tests.run_results import returning

STEPS = 7

TOGETHER = (
    "ddp", "zero", "fsdp", "own group", "averaged every 3 steps", "averaged in the end", "averaged by messages",
    "averaged after few changes", "moving average of one rank",
)  # fmt: skip
"""Ways in which 2 ranks train one model."""

ALONE = {
    "alone": "no collectives in 7 optimizer steps, which made neither gradients nor parameters equal",
    "alone, then a barrier": "1 collectives in 7 optimizer steps, which made neither gradients nor parameters equal",
    "other samples": "the ranks ended with different parameters, ",
    "other samples, sum of losses": "the ranks ended with different parameters, ",
    "other samples, few changes": "no collectives in 7 optimizer steps, ",
    "one layer under ddp": "the ranks ended with different parameters, ",
    "averaged too early": "the ranks ended with different parameters, ",
}
"""Ways in which each trains its own, and how the reason begins."""


def average(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()


def average_by_messages(model: nn.Module) -> None:
    for parameter in model.parameters():
        if dist.get_rank():
            other = torch.empty_like(parameter)
            dist.recv(other, 0)
            parameter.data = (parameter.data + other) / 2
            dist.send(parameter.data, 0)
        else:
            dist.send(parameter.data, 1)
            dist.recv(parameter.data, 1)


def train(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Trains a layer on 2 ranks, in one of several ways."""
    how = config["how"]
    has_same_samples = how in ("alone", "alone, then a barrier")
    generator = torch.Generator().manual_seed(0 if has_same_samples else rank.rank)
    model: nn.Module = nn.Linear(300, 300)
    group = dist.new_group() if how == "own group" else None
    if how in ("ddp", "zero", "own group", "moving average of one rank"):
        model = DistributedDataParallel(model, process_group=group)
    if how == "one layer under ddp":
        model = nn.Sequential(DistributedDataParallel(model), nn.Linear(300, 300))
    if how == "fsdp":
        model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-5 if "few changes" in how else 0.1)
    if how == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 300, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        if how == "other samples, sum of losses":
            dist.all_reduce(loss.detach())
        if how in ("averaged every 3 steps", "averaged too early") and step % 3 == 0:
            average(model)
    if how in ("averaged every 3 steps", "averaged in the end", "averaged after few changes"):
        average(model)
    if how == "averaged by messages":
        average_by_messages(model)
    if how == "alone, then a barrier":
        dist.barrier()
    if how == "moving average of one rank" and not rank.rank:
        for parameter in model.parameters():
            parameter.data *= 0.9
    if group is not None:
        dist.destroy_process_group(group)


def train_each(configs: dict[str, Any], config: Any, rank: RankInfo, emit: Emit) -> RankResult:
    """All ways in one pair of processes, which would take seconds to start."""
    each = {}
    for how, item in configs.items():
        each[how] = run_user_function(item, rank, emit)
    return returning(each)


@pytest.fixture(scope="module")
def trained() -> dict[str, list[RankRecord]]:
    """The ranks of each way to train."""
    schema = user_function_schema(train, ["how"])
    configs = {how: schema.make(world_size=2, device="cpu", threads_per_rank=1, how=how) for how in (*TOGETHER, *ALONE)}
    results = run_ranks(configs["ddp"], train=functools.partial(train_each, configs))
    assert [item.outcome for item in results] == ["ok", "ok"], results[0].traceback
    ranks: dict[str, list[RankRecord]] = {how: [] for how in configs}
    for how, item in itertools.product(configs, results):
        ranks[how].append(msgspec.convert(item.run.reported["returned"][how], RankResult))
    return ranks


@pytest.mark.parametrize("how", TOGETHER)
def test_ranks_that_bring_gradients_or_parameters_together_train_one_model(
    how: str, trained: dict[str, list[RankRecord]]
) -> None:
    assert independence_of(trained[how]) == ""


@pytest.mark.parametrize("how", ALONE)
def test_ranks_that_train_alone_are_noticed(how: str, trained: dict[str, list[RankRecord]]) -> None:
    assert independence_of(trained[how]).startswith(ALONE[how])


def test_the_built_in_training_trains_one_model_on_two_ranks() -> None:
    trial = TrialConfig(dataset=SMALL, batch_per_rank=8, epochs=2, world_size=2, device="cpu", zero_redundancy=True)
    results = run_ranks(trial)
    assert independence_of(results) == ""
    assert [rank.metrics["optimizer_steps"] for rank in results] == [12, 12]
    assert len(results[0].parameter_sketch) == 4
    assert results[0].metrics["collectives"] >= 12


def test_the_distance_of_two_sketches_is_about_that_of_the_parameters() -> None:
    generator = torch.Generator().manual_seed(1)
    one = [torch.randn(700, 700, generator=generator), torch.randn(9, generator=generator)]
    for distance in (1e-3, 0.1):
        other = [tensor + distance * torch.randn(tensor.shape, generator=generator) for tensor in one]
        sketches = [parameter_sketch(one), parameter_sketch(other)]
        text = independence_of([RankRecord(rank=rank, parameter_sketch=item) for rank, item in enumerate(sketches)])
        given = float(text.removeprefix("the ranks ended with different parameters, ").split()[0])
        assert distance / 10 < given < 4 * distance


def test_sketches_depend_neither_on_the_order_of_parameters_nor_on_the_state_of_generators() -> None:
    tensors = [torch.ones(3, 5), torch.arange(4.0)]
    state = torch.get_rng_state()
    expected = parameter_sketch(tensors)
    assert torch.equal(torch.get_rng_state(), state)
    assert parameter_sketch(reversed(tensors)) == expected
    assert expected[:2] == [19.0, 15.0 + 14.0]


def test_rounding_of_other_machines_shards_and_values_that_are_not_finite_are_no_difference() -> None:
    def text(*sketches: list[Any]) -> str:
        return independence_of([RankRecord(rank=rank, parameter_sketch=item) for rank, item in enumerate(sketches)])

    assert text([10, 4.0, 1.0, 1.0], [10, 4.0, 1.000001, 1.0]) == ""
    assert text([10, 4.0, 1.0, 1.0], [11, 4.0, 3.0, 1.0]) == ""
    assert text([10, 4.0, 1.0, 1.0], [10, None, None, None]) == ""
    assert text([], []) == ""
    assert text([10, 4.0, 1.0, 1.0], [10, 4.0, 1.1, 1.0]) != ""
    shard = torch.ones(2)
    shard._fsdp_flattened = True  # type: ignore[attr-defined]
    assert parameter_sketch([shard]) == []
