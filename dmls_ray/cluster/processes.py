"""Processes of ranks: how the broker ends them, and how many the kernel has ended.

Loads no PyTorch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmls_ray.cluster.messages import RankRegistration
from dmls_ray.util.free_memory import own_cgroups

ANSWER_TIMEOUT_S = 5.0
"""How long a machine may take to report its memory: it may be gone itself."""

END_TIMEOUT_S = 30.0
"""How long a machine may take to start a process that ends another, and to see that gone."""

CLOCK_STEP_S = 60.0
"""How far the system's clock may be set: the time at which a process started follows from it. Pids are reused later."""

KILL_TIMEOUT_S = 3.0
"""How long a process that was killed may take to end. One that waits for a device or a network drive takes longer."""


async def end_process_there(card: RankRegistration) -> bool:
    """End a rank's process, whatever it does; returns whether it is known to be gone.

    A task on its machine does it: `ray.kill` takes 5 s where the process is stopped, and this 0.1 s.
    """
    return bool(await _call_there(card, END_TIMEOUT_S, end_process, card.pid, card.process_started))


async def oom_kills_there(card: RankRegistration) -> int | None:
    """`oom_kills` of a rank's machine; None where it does not answer soon."""
    count: int | None = await _call_there(card, ANSWER_TIMEOUT_S, oom_kills)
    return count


async def _call_there(card: RankRegistration, timeout_s: float, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a task on a rank's machine; None without an answer."""
    there = NodeAffinitySchedulingStrategy(card.node_id, soft=False)
    task = ray.remote(function).options(num_cpus=0, scheduling_strategy=there, max_retries=3)
    with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
        return await asyncio.wait_for(task.remote(*args), timeout_s)
    return None


def end_process(pid: int, started: float) -> bool:
    """Kill a process of this machine and its children, if it is still the one that was meant.

    Returns:
        Whether the process is gone.
    """
    try:
        process = psutil.Process(pid)
        if abs(process.create_time() - started) > CLOCK_STEP_S:
            return True
        members = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return True
    for member in members:
        # A child may belong to another user: a program that the function starts with sudo.
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            member.kill()
    _, alive = psutil.wait_procs([process], timeout=KILL_TIMEOUT_S)
    return not alive or process.status() == psutil.STATUS_ZOMBIE


def oom_kills(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """How many processes the kernel has ended for lack of memory, in the control group of this process or below it.

    A rank is in the group of its machine's raylet, and so are the tasks that ask. Without groups of version 2 it is the
    count of the whole machine (/proc/vmstat since Linux 4.13). None if the kernel does not report it.

    Args:
        proc: where the kernel describes processes.
        cgroups: where it describes control groups.
    """
    counters = [*(folder / "memory.events" for folder in own_cgroups(proc, cgroups)), proc / "vmstat"]
    for counter in counters:
        with contextlib.suppress(OSError):
            for line in counter.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return None
