"""Dealing with actors and processes that may be gone: the broker by name, calls that outlive it, and the end of a rank.

Everything that touches Ray in the broker's surroundings and is no rule of its own; without PyTorch, since Train's
controller loads it as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.messages import RankRegistration

_BACK_WITHIN_S = 60.0
"""How long a broker that died may take to be there again."""


_LIVES_AHEAD = 5
"""How many brokers may have died without a line having heard of any of them."""

_ANSWERS_WITHIN_S = 5.0
"""How long a machine may take to tell of its memory: it may be gone itself."""


def actor_name(name: str, life: int) -> str:
    """What a broker and those that follow it are called, from 0: Ray does not give a dead actor's name away."""
    return f"{name}.{life}"


class BrokerClient:
    """A line to whoever is the broker: one that died is followed by another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._life = -1
        self._handle: Any = None

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call, wait, and return the answer; where the broker dies over it, call its successor.

        Raises:
            RayActorError: no broker came back in time.
        """
        until = time.monotonic() + _BACK_WITHIN_S
        while True:
            try:
                return self.call_once(method, *args, **options)
            except ray.exceptions.RayActorError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def call_once(self, method: str, *args: Any, **options: Any) -> Any:
        """Call, wait, and return the answer.

        Raises:
            RayActorError: there is no broker now, or it died over the call.
        """
        try:
            return ray.get(self.submit(method, *args, **options))
        except ray.exceptions.RayActorError:
            self._look_for_the_next()
            raise

    def submit(self, method: str, *args: Any, **options: Any) -> Any:
        """Call without waiting; returns the answer to come.

        Raises:
            RayActorError: there is no broker now.
        """
        if self._handle is None:
            self._look_for_the_next()
        if self._handle is None:
            raise ray.exceptions.RayActorError(error_msg=f"There is no actor {self.name}.")
        return getattr(self._handle, method).remote(*args, **options)

    def _look_for_the_next(self) -> None:
        """Take the newest broker that there is; several may have died since this line last heard of one."""
        # Several threads may look at once, so none counts on from where another is.
        known = self._life
        life = known + 1
        while life <= known + _LIVES_AHEAD:
            # Ray tells nothing of the name of a dead one, which is no reason to stop looking.
            with contextlib.suppress(ValueError):
                self._handle = ray.get_actor(actor_name(self.name, life), namespace=NAMESPACE)
                self._life = known = life
            life += 1


def end_process(card: RankRegistration) -> None:
    """End a rank's process, whatever it does; returns at once.

    A task on its machine does it: `ray.kill` takes 5 s where the process is stopped, and this 0.1 s.
    """
    _there(card, _end_process_here).remote(card.pid, card.process_start_time)


async def oom_kills_there(card: RankRegistration) -> int | None:
    """`oom_kills` of a rank's machine; None where it does not answer soon."""
    with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
        count: int | None = await asyncio.wait_for(_there(card, oom_kills).remote(), _ANSWERS_WITHIN_S)
        return count
    return None


def _there(card: RankRegistration, function: Callable[..., Any]) -> Any:
    """A function as a task on a rank's machine."""
    strategy = NodeAffinitySchedulingStrategy(card.node_id, soft=False)
    return ray.remote(function).options(num_cpus=0, scheduling_strategy=strategy, max_retries=3)


def _end_process_here(pid: int, started: float) -> None:
    """Kill a process of this machine and its children, if it is still the one that was meant."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(process.create_time() - started) < 0.1:
            for one in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()


def oom_kills() -> int | None:
    """How many processes the kernel has ended for want of memory here: in this container, else on this machine.

    None where the kernel does not tell (cgroup v2's memory.events, /proc/vmstat since Linux 4.13).
    """
    for path, key in (("/sys/fs/cgroup/memory.events", "oom_kill"), ("/proc/vmstat", "oom_kill")):
        with contextlib.suppress(OSError):
            for line in Path(path).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
    return None
