"""The outcome of an attempt at a run, from the results of its ranks: those of real ranks, and made ones."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.cluster.scheduler.attempt import Attempt
from dmls_ray.cluster.scheduler.retry import retry
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import CollectiveWait, RankResult, Verdict
from dmls_ray.training.collective_wait import collective_wait
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
    wrapped = DistributedDataParallel(model) if how in ("ddp", "join", "return", "raise") else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    own = 3 if rank.rank == 1 and how in ("ddp", "join", "reduce", "destroy") else 5
    batches = torch.ones(own, 2, 4)
    with Join([wrapped]) if how == "join" else torch.enable_grad():  # type: ignore[list-item]
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            wrapped(batch).sum().backward()
            if how in ("reduce", "destroy"):
                dist.all_reduce(next(model.parameters()).grad)
            optimizer.step()
            if rank.rank == 1 and step == 2 and how == "return":
                return {}
            if rank.rank == 1 and step == 2 and how == "raise":
                raise LookupError("no such file")
    if rank.rank != 1 and how == "barrier":
        dist.barrier()
    if how == "destroy":
        dist.destroy_process_group()
    return {}


def hanging(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None:
    """Trains in epochs of which ranks 0 and 1 hang in the first or second; leaves the file `wait-<rank>` and ends."""
    how, folder = config["how"], Path(config["folder"])
    steps: Counter[str] = Counter()
    thread = threading.get_ident()

    def observe() -> None:
        time.sleep(1)
        wait = collective_wait(thread, steps)
        (folder / f"wait-{rank.rank}").write_text(json.dumps(wait and asdict(wait)), encoding="utf-8")
        while len(list(folder.glob("wait-*"))) < rank.world_size:
            time.sleep(0.05)
        time.sleep(0.2)
        os._exit(1)

    is_more = rank.rank == 1
    # Of other sizes than these, gloo's messages end the process with a C++ exception.
    model = DistributedDataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    threading.Thread(target=observe, daemon=True).start()
    for _ in range(2):
        for _ in range(3 + (is_more and how == "batches")):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            steps.update(["steps"])
        if how == "tests":
            for _ in range(2 + is_more):
                dist.all_reduce(torch.ones(1))
            continue
        if is_more and how == "sleeps":
            time.sleep(60)
        if is_more and how == "receives":
            dist.recv(torch.zeros(1), src=0)
        weights = torch.ones(500, 500, requires_grad=True)
        loss = (weights @ weights).sum()
        while is_more and how == "computes":
            loss.backward(retain_graph=True)
        dist.barrier()


def verdict_of(
    results: Sequence[RankResult], overdue: str = "", waits: Sequence[CollectiveWait | None] = ()
) -> tuple[Verdict, bool]:
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
    attempt.waits = dict(zip(names, waits, strict=False))
    verdict = attempt.verdict()
    return verdict, retry(attempt, verdict, RunLimits(max_retries=1)) is not None


@pytest.mark.parametrize(
    ("how", "world_size", "reason"),
    [
        ("ddp", 2, f"rank 1 ended after 3 steps while rank 0 waited in a later one; {EVEN} or use Join"),
        ("ddp", 3, f"rank 1 ended after 3 steps while ranks 0 and 2 waited in a later one; {EVEN} or use Join"),
        ("return", 2, f"rank 1 ended after 3 steps while rank 0 waited in a later one; {EVEN} or use Join"),
        ("reduce", 2, "rank 1 ended after 3 steps while rank 0 waited in a later collective; " + EVEN),
        ("destroy", 2, "rank 1 ended after 3 steps while rank 0 waited in a later collective; " + EVEN),
        ("barrier", 2, "rank 1 ended after 5 steps while rank 0 waited in a later collective; " + EVEN),
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
                result(0, "error", steps=9, collectives=9, waits_in_step=True, **GONE),
                result(1, steps=7, collectives=7), result(2, steps=4, collectives=4),
            ],
            "error", "rank 2 ended after 4 steps while rank 0 waited in a later one; ", False,
        ),
    ],
)  # fmt: skip
def test_only_ranks_that_began_more_collectives_waited_for_one_that_ended(
    results: Sequence[RankResult], outcome: str, reason: str, is_tried_again: bool
) -> None:
    verdict, again = verdict_of(results)
    assert (verdict.outcome.value, again) == (outcome, is_tried_again)
    assert verdict.reason.startswith(reason)


def test_a_rank_that_hangs_while_another_has_ended_is_a_timeout_that_says_so() -> None:
    results = [result(0, "killed", reason="killed"), result(1, steps=7, collectives=9)]
    verdict, _ = verdict_of(results, overdue="no progress for 600 s (stall_timeout)")
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.reason == "no progress for 600 s (stall_timeout); rank 1 had ended after 7 steps"


STALLED = "no progress for 600 s (stall_timeout)"


@pytest.mark.parametrize(
    ("how", "is_mismatch"),
    [("batches", True), ("tests", True), ("sleeps", False), ("receives", False), ("computes", False)],
)
def test_ranks_that_all_wait_in_collectives_that_do_not_match_are_an_error_and_a_rank_that_hangs_alone_is_not(
    tmp_path: Path, how: str, is_mismatch: bool
) -> None:
    schema = user_function_schema(hanging, ["how", "folder"])
    config = schema.make(how=how, folder=str(tmp_path), world_size=2, device="cpu")
    results = run_ranks(config, train=run_user_function)
    written = [json.loads((tmp_path / f"wait-{rank}").read_text(encoding="utf-8")) for rank in range(2)]
    waits = [values and CollectiveWait(**values) for values in written]
    assert waits[0].steps == 3
    assert (waits[1] is not None) == is_mismatch
    verdict, is_tried_again = verdict_of(results, STALLED, waits)
    assert (verdict.outcome, is_tried_again) == ((Outcome.ERROR, False) if is_mismatch else (Outcome.TIMEOUT, True))


def test_an_error_of_collectives_that_do_not_match_names_ranks_steps_and_lines() -> None:
    barrier = CollectiveWait(steps=5, collectives=9, line="train.py:17")
    backward = CollectiveWait(steps=5, collectives=9, line="train.py:16")
    killed = [result(rank, "killed", reason="killed") for rank in range(3)]
    verdict, _ = verdict_of(killed, STALLED, [barrier, backward, barrier])
    assert verdict.reason == (
        "the ranks wait in collectives that do not match: ranks 0 and 2 in collective 9 after 5 steps (train.py:17), "
        f"rank 1 in collective 9 after 5 steps (train.py:16); {EVEN}, and let every rank take part in each collective"
    )
    # All wait in the same: the network between them fails.
    verdict, is_tried_again = verdict_of(killed, STALLED, [barrier] * 3)
    assert (verdict.outcome, verdict.reason, is_tried_again) == (Outcome.TIMEOUT, STALLED, True)
