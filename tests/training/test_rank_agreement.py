from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.records.aggregate import take_results
from dmls_ray.records.agreement import independence_of
from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_agreement import AgreementMeter, parameter_sketch
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.conftest import SMALL
from tests.new_processes import run_ranks

STEPS = 6


def train(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Trains a layer on 2 ranks, in one of several ways."""
    how = config["how"]
    generator = torch.Generator().manual_seed(rank.rank if how in ("ddp", "apart", "zero", "local steps") else 0)
    model: nn.Module = nn.Linear(300, 300)
    group = dist.new_group() if how == "own group" else None
    if how in ("ddp", "zero", "own group"):
        model = DistributedDataParallel(model, process_group=group)
    if how == "zero":
        optimizer: Any = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 300, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        if how == "loss only":
            dist.all_reduce(loss.detach())
    if how == "local steps":
        for parameter in model.parameters():
            dist.all_reduce(parameter.data, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
    if group is not None:
        dist.destroy_process_group(group)


def independence(how: str) -> str:
    config = user_function_schema(train, ["how"]).make(world_size=2, device="cpu", threads_per_rank=1, how=how)
    record = RunRecord(
        run_id="r-0", trial_id="r", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK,
        config=config.canonical(),
    )  # fmt: skip
    results = run_ranks(config, train=run_user_function)
    assert [item.outcome for item in results] == ["ok", "ok"], results[0].traceback
    take_results(record, results)
    return record.independent_ranks


@pytest.mark.parametrize("how", ["ddp", "zero", "own group"])
def test_ranks_under_ddp_and_zero_train_one_model(how: str) -> None:
    assert independence(how) == ""


def test_ranks_that_train_alone_on_the_same_data_are_noticed_by_their_collectives() -> None:
    assert independence("alone") == (
        "no collectives in 6 optimizer steps, so gradients were not communicated in each of them"
    )


def test_ranks_that_train_alone_on_other_data_are_noticed_by_their_parameters_too() -> None:
    assert "; the ranks ended with different parameters, 0." in independence("apart")


def test_ranks_that_average_once_in_the_end_are_noticed_and_have_equal_parameters() -> None:
    assert independence("local steps") == (
        "2 collectives in 6 optimizer steps, so gradients were not communicated in each of them"
    )


def test_the_built_in_training_trains_one_model_on_two_ranks() -> None:
    trial = TrialConfig(dataset=SMALL, batch_per_rank=8, epochs=2, world_size=2, device="cpu", zero_redundancy=True)
    results = run_ranks(trial)
    ranks = [RankRecord(rank=item.rank, **_known(item.values)) for item in results]
    assert independence_of(ranks) == ""
    assert [rank.optimizer_steps for rank in ranks] == [12, 12]
    assert len(ranks[0].parameter_sketch) == 4
    assert (ranks[0].collectives or 0) >= 12


def _known(values: Any) -> dict[str, Any]:
    return {name: values[name] for name in ("collectives", "optimizer_steps", "parameter_sketch")}


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
    shard._is_flat_param = True  # type: ignore[attr-defined]
    assert parameter_sketch([shard]) == []


def test_only_the_optimizers_of_the_last_steps_are_kept() -> None:
    meter = AgreementMeter()
    optimizers = [torch.optim.SGD([nn.Parameter(torch.ones(1) * number)], lr=0.1) for number in range(6)]
    for optimizer in optimizers:
        meter.step(optimizer)
        meter.step(optimizer)
    values = meter.read_optimizers()
    assert values["optimizer_steps"] == 2
    assert values["parameter_sketch"][:2] == [4.0, float(2**2 + 3**2 + 4**2 + 5**2)]
