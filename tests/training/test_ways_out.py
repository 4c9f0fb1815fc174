"""PyTorch raises each of these errors here; the line about it says what helps, and begins with PyTorch's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.ways_out import describe_error
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.new_processes import run_ranks


@pytest.mark.parametrize(
    ("call", "begin", "end"),
    [
        (lambda: torch.optim.SGD([]), "ValueError: optimizer got an empty parameter list: ", "require a gradient."),
        (
            lambda: torch.ones(()).backward(),
            "RuntimeError: element 0 of tensors does not require",
            "requires_grad=False.",
        ),
        (
            lambda: torch.ones(2, requires_grad=True).backward(),
            "RuntimeError: grad can be",
            "take its mean or its sum.",
        ),
        (lambda: nn.LazyLinear(2).weight.dim(), "ValueError: Attempted to use an", "call the model once before."),
        (lambda: nn.BatchNorm1d(2)(torch.ones(1, 2)), "ValueError: Expected more than 1", "or drop the last one."),
        (dist.get_rank, "ValueError: Default process group has not", "only if torch.distributed.is_initialized()."),
        (lambda: [][1], "IndexError: list index out of range", "list index out of range"),
        (lambda: exec("raise KeyError"), "KeyError", "KeyError"),
    ],
)
def test_an_error_of_pytorch_is_followed_by_what_helps(call: Callable[[], Any], begin: str, end: str) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of several types
        call()
    line = describe_error(raised.value, has_flags=False)
    assert line.startswith(begin)
    assert line.endswith(end)


def makes_the_group_again(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    dist.init_process_group("gloo")


def leaves_parameters_unused(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    model.forward = lambda images: model[0](images)  # type: ignore[method-assign]
    ddp = DistributedDataParallel(model)
    for _ in range(2):
        ddp(torch.ones(1, 2)).sum().backward()


def trains_nothing(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    DistributedDataParallel(nn.Linear(2, 1).requires_grad_(False))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (makes_the_group_again, "process group twice: dmls_ray has made the process group; call init_process_group()"),
        (leaves_parameters_unused, "give DistributedDataParallel static_graph=True if they never have, else"),
        (trains_nothing, "requires a gradient: leave a parameter with requires_grad=True."),
    ],
)
def test_a_function_is_told_what_helps_under_ddp(function: Callable[..., None], message: str) -> None:
    config = user_function_schema(function).make(world_size=2, device="cpu")
    results = run_ranks(config, train=run_user_function)
    assert any(message in result.reason for result in results), [result.reason for result in results]
    assert all(result.outcome == "error" for result in results)
