from __future__ import annotations

import functools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psutil
import torch.distributed as dist

from dmls_ray.training.process import process_group, store_at
from dmls_ray.training.rank import RankInfo
from tests.new_processes import call_in_new_process


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
