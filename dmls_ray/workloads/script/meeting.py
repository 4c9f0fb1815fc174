"""`Meeting`: where the ranks of a script's run find each other, and agree on its last step."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from torch import distributed as dist

from dmls_ray.training.process import store_at
from dmls_ray.training.rank import RankInfo

_WAIT = timedelta(seconds=30)
"""How long a rank waits for the others, which may make fewer steps than it."""
_WAIT_FOR_FIRST = timedelta(seconds=5)
"""How long it waits for rank 0 to make its first step, which it may not do at all."""


class Meeting:
    """The key-value store of a run, as torchrun's agent has one: in the process of rank 0.

    The store of the worker group tells the other ranks its port. It cannot be the script's itself, which has no names
    of its own for the keys of each run.

    Args:
        rank: this rank, of several.
        host: where the store of the worker group is.
        port: of that store.
    """

    def __init__(self, rank: RankInfo, host: str, port: int) -> None:
        self._rank = rank
        place = dist.PrefixStore(rank.name, dist.TCPStore(host, port, is_master=False))
        if rank.rank == 0:
            self.store = store_at(host)
            place.set("port", str(self.store.port))
            # A script that fails at once ends this process, and with it the store, which the others would look for.
            place.wait([f"joined {other}" for other in range(1, rank.world_size)])
        else:
            self.store = dist.TCPStore(host, int(place.get("port")), is_master=False)
            place.set(f"joined {rank.rank}", "")
        self._steps = dist.PrefixStore("dmls_ray/steps", self.store)
        self._has_waited = False
        """Whether rank 0 had its time for a first step."""
        self._has_answer = True
        """Whether the rank that is asked has answered so far: one that made fewer steps does not, and is asked once."""

    def is_over(self, step: int, *, wanted: bool) -> bool:
        """Whether the run ends after a step: what the first of the ranks that make steps wants.

        Args:
            step: the number of the step, which all of them have made.
            wanted: what this rank wants.
        """
        if not self._has_waited:
            self._has_waited = True
            with contextlib.suppress(dist.DistError):
                self._steps.wait(["first 0"], _WAIT_FOR_FIRST)
        with contextlib.suppress(dist.DistError):  # rank 0 may have ended before, and the store with it
            leader = self._making_steps()[0]
            key = f"over {step} for {leader}"
            if self._rank.rank == leader:
                self._steps.set(key, str(int(wanted)))
                return wanted
            if self._has_answer:
                self._has_answer = False
                self._steps.wait([key], _WAIT)
                self._has_answer = True
                return bool(int(self._steps.get(key)))
        return False

    def _making_steps(self) -> list[int]:
        """The ranks that have made their first step."""
        return [rank for rank in range(self._rank.world_size) if self._steps.check([f"first {rank}"])]

    def begin(self) -> None:
        """This rank has made its first step."""
        with contextlib.suppress(dist.DistError):  # rank 0 may have ended before, and the store with it
            self._steps.set(f"first {self._rank.rank}", "")

    def was_left(self) -> bool:
        """Whether others have made their last step."""
        try:
            return any(self._steps.check([f"last {rank}"]) for rank in range(self._rank.world_size))
        except dist.DistError:
            return True  # rank 0 has ended, and the store with it

    def wait_for_all(self) -> None:
        """Wait until all ranks that make steps have made their last one: the end of one would end a collective of the
        others.
        """
        with contextlib.suppress(dist.DistError):
            self._steps.set(f"last {self._rank.rank}", "")
            self._steps.wait([f"last {rank}" for rank in self._making_steps()], _WAIT)
