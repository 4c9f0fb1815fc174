"""`BrokerClient`, calls that survive the death of a broker, and the functions that the broker runs on other machines.

Loads no PyTorch, since Train's controller imports it as well.
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

BROKER_RESTART_TIMEOUT_S = 60.0
"""How long a broker that died may take to be replaced."""


MAX_GENERATION_GAP = 5
"""How many brokers may have died unnoticed by a client."""

_ANSWERS_WITHIN_S = 5.0
"""How long a machine may take to report its memory: it may be gone itself."""


def actor_name(name: str, generation: int) -> str:
    """Actor name of the broker of a generation, from 0: Ray does not release the name of a dead actor at once."""
    return f"{name}.{generation}"


class BrokerClient:
    """Client of the current broker actor. Reconnects to its replacement if the broker dies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._generation = -1
        self._handle: Any = None

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call, wait, and return the answer; if the broker dies meanwhile, call its replacement.

        Raises:
            RayActorError: no broker came back in time.
        """
        until = time.monotonic() + BROKER_RESTART_TIMEOUT_S
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
            self._find_newest()
            raise

    def submit(self, method: str, *args: Any, **options: Any) -> Any:
        """Call without waiting; returns the answer to come.

        Raises:
            RayActorError: there is no broker now.
        """
        if self._handle is None:
            self._find_newest()
        if self._handle is None:
            raise ray.exceptions.RayActorError(error_msg=f"There is no actor {self.name}.")
        return getattr(self._handle, method).remote(*args, **options)

    def _find_newest(self) -> None:
        """Connect to the newest broker; several may have died since the last call."""
        # Several threads may look at once, so none counts on from where another is.
        newest = self._generation
        generation = newest + 1
        while generation <= newest + MAX_GENERATION_GAP:
            # Ray does not resolve the name of a dead actor; a later one may still be alive.
            with contextlib.suppress(ValueError):
                self._handle = ray.get_actor(actor_name(self.name, generation), namespace=NAMESPACE)
                self._generation = newest = generation
            generation += 1


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
            for member in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()


def oom_kills() -> int | None:
    """How many processes the kernel has ended for want of memory here: in this container, else on this machine.

    None if the kernel does not report it (cgroup v2's memory.events, /proc/vmstat since Linux 4.13).
    """
    for path, key in (("/sys/fs/cgroup/memory.events", "oom_kill"), ("/proc/vmstat", "oom_kill")):
        with contextlib.suppress(OSError):
            for line in Path(path).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
    return None
