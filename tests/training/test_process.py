from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import psutil
import pytest
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.training.compat import after_each, ddp_logging_data
from dmls_ray.training.process import discard_first_run, process_group, set_torchrun_environment, store_at
from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import call_in_new_process, run_inline


def test_a_store_listens_at_its_address_only() -> None:
    store = store_at("127.0.0.1")
    links = psutil.Process().net_connections("inet")
    assert [link.laddr.ip for link in links if link.laddr and link.laddr.port == store.port and not link.raddr] == [
        "127.0.0.1"
    ]


class LateStore(dist.Store):
    """The store of a rank that finds the addresses of other ranks late."""

    def __init__(self, store: dist.Store) -> None:
        super().__init__()
        self._store = store

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=60)) -> None:
        self._store.wait(keys, timeout)

    def get(self, key: str) -> bytes:
        if key.endswith("/1"):
            time.sleep(0.5)
            self._store.set("late", "there")
        return self._store.get(key)


def enter_group(number: int, port: int) -> bool:
    """Whether the late rank, which is number 0, has found the others when this one enters the group."""
    store: dist.Store = dist.TCPStore("127.0.0.1", port, is_master=False)
    rank = RankInfo(rank=number, world_size=2, backend="gloo")
    with process_group(rank, store if number else LateStore(store)):
        return store.check(["late"])


def test_no_rank_is_in_the_group_before_all_are_connected() -> None:
    """A function without collectives would leave it at once, and the others would not find that rank any more."""
    store = store_at("127.0.0.1")
    with ThreadPoolExecutor(2) as pool:
        entered = [
            pool.submit(call_in_new_process, functools.partial(enter_group, number, store.port)) for number in range(2)
        ]
        assert [item.result() for item in entered] == [True, True]


NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def without_variables() -> Iterator[None]:
    with patch.dict(os.environ):
        for name in (*NAMES, "OMP_NUM_THREADS"):
            os.environ.pop(name, None)
        yield


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
        set_torchrun_environment(rank, threads=3)
        seen.append(variables())
    assert [item["RANK"] for item in seen] == ["0", "1", "2", "3"]
    assert [item["LOCAL_RANK"] for item in seen] == ["0", "1", "0", "1"]
    assert [item["GROUP_RANK"] for item in seen] == ["0", "0", "1", "1"]
    shared = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1234"}
    assert all(item.items() >= {**shared, "OMP_NUM_THREADS": "3"}.items() for item in seen)


def test_on_a_gpu_the_local_rank_is_its_number_which_libraries_take_it_for() -> None:
    assert RankInfo(rank=0, world_size=2, device="cuda:3").local_rank == 3


def test_a_run_of_one_rank_does_not_see_the_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # torchrun sets them for one rank, too, and there is no process group that a library could join.
    for name in (*NAMES, "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "0")
    set_torchrun_environment(RankInfo(), threads=1)
    assert variables() == {}
    assert "TORCHELASTIC_RUN_ID" not in os.environ


TRIAL = TrialConfig(
    dataset="synthetic:shape=1x8x8,classes=4,train=64,test=8", batch_per_rank=8, epochs=2, device="cpu", dropout=0.3,
    model="digits_convnet",
)  # fmt: skip


def _losses(*, discards: bool) -> list[Any]:
    if discards:
        discard_first_run("cpu")
    epochs = [epoch.metrics for epoch in run_inline(TRIAL).run.epochs]
    return [(metrics["train_loss"], metrics["test_loss"]) for metrics in epochs]


def test_a_discarded_run_trains_under_ddp_and_leaves_no_process_group() -> None:
    models: list[Any] = []
    with after_each(DistributedDataParallel, models.append):
        assert 0 < discard_first_run("cpu") < 60
    (model,) = models
    assert ddp_logging_data(model)["avg_backward_comm_time"] > 0
    assert not dist.is_initialized()


def test_a_run_after_a_discarded_one_has_the_losses_of_a_run_without() -> None:
    after, at_once = (call_in_new_process(functools.partial(_losses, discards=discards)) for discards in (True, False))
    assert after == at_once


def test_a_device_that_cannot_be_used_is_left_to_the_runs() -> None:
    with pytest.warns(UserWarning, match="The first run of this process may be slow: .*Error"):
        discard_first_run("cuda:99")
    assert not dist.is_initialized()
