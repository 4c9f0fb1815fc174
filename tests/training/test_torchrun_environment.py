"""Libraries that look for torchrun's environment find it in each run above one rank, and nothing of it afterwards."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.outcome import Outcome
from dmls_ray.training.error_to_outcome import run_guarded
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.torchrun_environment import torchrun_environment
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_ranks
from tests.training.probes import train_and_return_environment

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in (*NAMES, "OMP_NUM_THREADS") if name in os.environ}


def test_ranks_on_two_machines_have_their_number_on_the_machine_and_the_number_of_the_machine() -> None:
    machines = ("a", "a", "b", "b")
    ranks = [
        RankInfo(rank=rank, world_size=4, machine=machine, machines=machines, store_address=("a", 1234))
        for rank, machine in enumerate(machines)
    ]
    seen = []
    for rank in ranks:
        with torchrun_environment(rank, threads=3):
            seen.append(variables())
    assert [item["RANK"] for item in seen] == ["0", "1", "2", "3"]
    assert [item["LOCAL_RANK"] for item in seen] == ["0", "1", "0", "1"]
    assert [item["GROUP_RANK"] for item in seen] == ["0", "0", "1", "1"]
    shared = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1234"}
    assert all(item.items() >= {**shared, "OMP_NUM_THREADS": "3"}.items() for item in seen)


def test_on_a_gpu_the_local_rank_is_its_number_which_libraries_take_it_for() -> None:
    assert RankInfo(rank=0, world_size=2, device="cuda:3").local_rank == 3


def test_after_a_run_the_environment_is_as_before_whatever_the_run_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "7")
    before = dict(os.environ)

    def train(config: RuntimeConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
        assert os.environ["WORLD_SIZE"] == "2"
        del os.environ["WORLD_SIZE"]  # as Lightning does
        os.environ["MASTER_PORT"] = "29500"  # as accelerate does
        raise RuntimeError("a fault")

    result = run_guarded(train, RuntimeConfig(world_size=2), RankInfo(world_size=2), lambda event: None)
    assert (result.outcome, result.reason) == (Outcome.ERROR, "RuntimeError: a fault")
    assert dict(os.environ) == before


def test_a_run_of_one_rank_does_not_see_the_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # torchrun sets them for one rank, too, and there is no process group that a library could join.
    for name in (*NAMES, "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "0")
    with torchrun_environment(RankInfo(), threads=1):
        assert variables() == {}
        assert "TORCHELASTIC_RUN_ID" not in os.environ
    assert {*variables()} == {*NAMES}


def test_ranks_find_the_store_where_they_met() -> None:
    trial = TrialConfig(dataset="digits", batch_per_rank=8, world_size=2, device="cpu", threads_per_rank=1)
    environments = [result.run["returned"] for result in run_ranks(trial, train=train_and_return_environment)]
    assert [item["LOCAL_RANK"] for item in environments] == ["0", "1"]
    assert {item["MASTER_ADDR"] for item in environments} == {"127.0.0.1"}
    (port,) = {item["MASTER_PORT"] for item in environments}
    assert port.isdecimal()
