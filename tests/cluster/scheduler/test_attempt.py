"""The outcome of an attempt at a run, from the results of its ranks: those of real ranks, and made ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.retry import retry
from dmls_ray.config.options import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult, RunResult, Verdict
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.cluster.scheduler.ranks import job, result
from tests.new_processes import run_ranks

EVEN = "give every rank as many batches (DistributedSampler, drop_last)"


def uneven(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Trains with DDP or averages gradients itself; rank 1 makes 3 steps, the others make 5."""
    how = config["how"]
    model = nn.Linear(4, 2)
    wrapped = DistributedDataParallel(model) if how in ("ddp", "join", "raise") else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    own = 3 if rank.rank == 1 and how in ("ddp", "join", "reduce") else 5
    batches = torch.ones(own, 2, 4)
    with Join([wrapped]) if how == "join" else torch.enable_grad():  # type: ignore[list-item]
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            wrapped(batch).sum().backward()
            if how == "reduce":
                dist.all_reduce(next(model.parameters()).grad)
            optimizer.step()
            if rank.rank == 1 and step == 2 and how == "raise":
                raise LookupError("no such file")
    if rank.rank != 1 and how == "barrier":
        dist.barrier()
    return {}


def verdict_of(results: Sequence[RankResult], overdue: str = "") -> tuple[Verdict, bool]:
    """The verdict of an attempt whose ranks returned these results, and whether it is tried again."""
    names = [str(place) for place in range(len(results))]
    attempt = Attempt(job("r", len(results)), "r/1", names)
    for name, item in zip(names, results, strict=True):
        attempt.begun[name] = None
        if item.outcome is Outcome.KILLED:
            attempt.lose(name, item.reason)
        else:
            attempt.take(name, item)
    attempt.overdue = overdue
    verdict = attempt.verdict()
    return verdict, retry(attempt, verdict, RunLimits(max_retries=1)) is not None


@pytest.mark.parametrize(
    ("how", "world_size", "reason"),
    [
        ("ddp", 3, f"rank 1 ended after 3 steps while rank 0, 2 waited in a later collective; {EVEN}"),
        ("reduce", 2, f"rank 1 ended after 3 steps while rank 0 waited in a later collective; {EVEN}"),
        ("barrier", 2, f"rank 1 ended after 5 steps while rank 0 waited in a later collective; {EVEN}"),
        ("raise", 2, "LookupError: no such file"),
    ],
)
def test_ranks_that_wait_for_one_that_has_ended_are_an_error_that_says_so(
    how: str, world_size: int, reason: str
) -> None:
    schema = user_function_schema(uneven, ["how"])
    results = run_ranks(schema.make(how=how, world_size=world_size, device="cpu"), train=run_user_function)
    verdict, is_tried_again = verdict_of(results)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.reason.startswith(reason)
    assert not is_tried_again
    assert "Traceback" in verdict.traceback


def test_ranks_with_uneven_batches_that_use_join_are_ok() -> None:
    config = user_function_schema(uneven, ["how"]).make(how="join", world_size=2, device="cpu")
    results = run_ranks(config, train=run_user_function)
    assert verdict_of(results)[0].outcome is Outcome.OK, results
    assert [item.steps for item in results] == [5, 3]


GONE = {"reason": "Connection closed by peer", "is_symptom": True, "is_disconnected": True}
KILLED = result(1, "killed", reason="rank 1 ended with exit code -9")


@pytest.mark.parametrize(
    ("results", "outcome", "reason", "is_tried_again"),
    [
        # Both have begun the same collectives: the network between them has failed.
        (
            [result(0, "error", steps=6, collectives=9, **GONE), result(1, steps=7, collectives=9)],
            "killed", "the ranks lost each other: Connection closed by peer", True,
        ),
        (
            [result(0, "error", steps=6, **GONE), result(1, steps=7)],
            "killed", "the ranks lost each other: Connection closed by peer", True,
        ),
        # A rank that was killed is the cause, whatever the others did.
        ([result(0, "error", steps=7, collectives=9, **GONE), KILLED], "killed", "1 of 2 ranks died: rank 1", True),
        (
            [result(0, "error", steps=7, collectives=9, **GONE), KILLED, result(2, steps=3, collectives=4)],
            "killed", "1 of 3 ranks died: rank 1", True,
        ),
        # So is one that raised.
        (
            [result(0, "error", steps=7, collectives=9, **GONE), result(1, "oom", reason="8 GiB"), result(2)],
            "oom", "8 GiB", False,
        ),
        # The first that ended kept the others waiting.
        (
            [
                result(0, "error", steps=9, collectives=9, **GONE),
                result(1, steps=7, collectives=7), result(2, steps=4, collectives=4),
            ],
            "error", "rank 2 ended after 4 steps while rank 0 waited in a later collective; ", False,
        ),
    ],
)  # fmt: skip
def test_only_ranks_that_began_more_collectives_waited_for_one_that_ended(
    results: Sequence[RankResult], outcome: str, reason: str, is_tried_again: bool
) -> None:
    verdict, again = verdict_of(results)
    assert (verdict.outcome.value, again) == (outcome, is_tried_again)
    assert verdict.reason.startswith(reason)


IDLE = {"run": RunResult(without_steps="no step was seen")}
AT_END = {"steps": 50, "run": RunResult(was_ended=True)}


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        ([result(0, steps=50), result(1, **IDLE)], "ok"),
        ([result(0, **AT_END), result(1, "error", **GONE, **IDLE)], "ok"),
        ([result(0, **IDLE), result(1, **IDLE)], "error"),
        # It failed before the others were told to end, lost a rank that ended by itself, or had made steps.
        ([result(0, **AT_END), result(1, "error", reason="Connection refused", is_symptom=True)], "error"),
        ([result(0, steps=50), result(1, "error", **GONE, **IDLE)], "killed"),
        ([result(0, **AT_END), result(1, "error", steps=50, collectives=3, **GONE)], "error"),
    ],
    ids=[
        "it ends",
        "it is left",
        "no rank trains",
        "it fails before",
        "it is left by one that ends by itself",
        "it trains, too",
    ],
)
def test_a_rank_without_steps_may_serve_one_that_trains(results: Sequence[RankResult], outcome: str) -> None:
    assert verdict_of(results)[0].outcome.value == outcome


def test_a_rank_that_hangs_while_another_has_ended_is_a_timeout_that_says_so() -> None:
    results = [result(0, "killed", reason="killed"), result(1, steps=7, collectives=9)]
    verdict, _ = verdict_of(results, overdue="no progress for 600 s (stall_timeout)")
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.reason == "no progress for 600 s (stall_timeout); rank 1 had ended after 7 steps"
