from __future__ import annotations

from typing import Any

import pytest
import torch

from dmls_ray.records.run_events import RankResult
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_inline, run_spawned
from tests.training.test_engine import config


@pytest.mark.slow
def test_a_fault_on_one_rank_ends_all_with_its_cause_on_that_rank() -> None:
    first, second = run_spawned(config(model="tests.training.probes:raising", world_size=2))
    assert second.outcome == "error"
    assert second.reason == "RuntimeError: a fault in the user's model"
    assert "probes.py" in second.traceback
    assert first.outcome == "error"
    assert (first.is_symptom, second.is_symptom) == (True, False), "the first only tells that its peer is gone"


def test_out_of_memory_is_an_outcome_of_its_own() -> None:
    result = run_inline(config(model="tests.training.probes:out_of_memory"))
    assert result.outcome == "oom"
    assert "Tried to allocate 8.00 GiB" in result.reason


def test_memory_of_the_host_that_does_not_suffice_is_out_of_memory_too() -> None:
    def hungry(trial: TrialConfig, rank: Any, emit: Any) -> RankResult:
        return {"big": torch.empty(2**50)}

    result = run_inline(config(), train=hungry)
    assert result.outcome == "oom", result.reason


@pytest.mark.slow
def test_a_rank_that_dies_is_killed() -> None:
    _, second = run_spawned(config(model="tests.training.probes:dying", world_size=2))
    assert (second.outcome, second.reason) == ("killed", "rank 1 ended with exit code -9")


def test_inline_and_spawned_runs_agree_bit_for_bit() -> None:
    (spawned,) = run_spawned(config())
    inline = run_inline(config())
    assert inline.run.epochs[0].metrics["train_loss"] == spawned.run.epochs[0].metrics["train_loss"]
