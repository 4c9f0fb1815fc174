"""What a run leaves in its process and nothing can set back: then another process is to serve the next run."""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import math
import multiprocessing
import os
import random
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist
import torch.nn.functional
import torch.utils.data
from torch import nn

from dmls_ray.training.compat import is_profiling, open_modes

JOIN_TIMEOUT_S = 1.0
"""How long threads and child processes of a run that has ended may take to end."""

_PATCHABLE: Mapping[str, Any] = {
    "builtins": builtins, "math": math, "os": os, "random": random, "time": time,
    "numpy": np, "numpy.random": np.random,
    "torch": torch, "torch.nn.functional": nn.functional, "torch.distributed": dist, "torch.autograd": torch.autograd,
    "torch.nn.init": nn.init, "torch.optim.lr_scheduler": torch.optim.lr_scheduler,
    "torch.utils.data": torch.utils.data,
    "torch.Tensor": torch.Tensor, "torch.optim.Optimizer": torch.optim.Optimizer,
    "DistributedDataParallel": nn.parallel.DistributedDataParallel, "DataLoader": torch.utils.data.DataLoader,
    **{f"torch.nn.{name}": item for name, item in vars(nn).items() if isinstance(item, type)},
    **{f"torch.optim.{name}": item for name, item in vars(torch.optim).items() if isinstance(item, type)},
}  # fmt: skip
"""Modules and classes whose functions a run may have replaced."""

_RUNTIME = ("torch", "ray", "dmls_ray", "concurrent.futures.process")
"""Packages whose threads serve the process, not one run."""

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "torch/_inductor/compile_worker")
"""In the command lines of processes that Python and PyTorch start once and keep."""


class Remains:
    """What is there before a run."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._children = _children()
        self._functions = _functions_before()
        self._known = _ids_before()
        self._states = [read() for read in _STATES.values()]
        self._modes = open_modes()

    def are_living(self) -> bool:
        """Whether the run has left threads or child processes."""
        return bool(set(threading.enumerate()) - self._threads or _children() - self._children)

    def end_living(self) -> Iterable[str]:
        """End the child processes, and wait for the threads; yields the names of threads that do not end."""
        # Executors and data loaders end theirs when they are collected.
        gc.collect()
        for child in _children() - self._children:
            _end_child(child)
        multiprocessing.active_children()  # reaps those that have ended
        until = time.monotonic() + JOIN_TIMEOUT_S
        for thread in set(threading.enumerate()) - self._threads:
            if type(thread).__module__ == "tqdm._monitor":
                thread.exit()  # type: ignore[attr-defined]
            elif not _is_of_runtime(thread):
                thread.join(max(0.0, until - time.monotonic()))
                if thread.is_alive():
                    yield f"a thread ({_title(thread)})"

    def changes(self) -> Iterable[str]:
        """Names of what the run has changed for good."""
        for (name, read), before in zip(_STATES.items(), self._states, strict=True):
            if read() != before:
                yield name
        if open_modes() > self._modes:
            yield "a mode that intercepts calls of PyTorch"
        for patched in self._patched():
            yield f"a patch of {patched}"

    def _patched(self) -> Iterable[str]:
        for name, owner in _PATCHABLE.items():
            present = vars(owner)
            for key, function in self._functions[name].items():
                now = present.get(key)
                if now is not function and (id(now) in self._known or not _is_by_pytorch(now)):
                    yield f"{name}.{key}"


_STATES: Mapping[str, Callable[[], Any]] = {
    "inference mode": torch.is_inference_mode_enabled,
    "a profiler": is_profiling,
    "other processor cores": lambda: os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
    "another priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    # A stream of the user may have no more than write().
    "a closed stream": lambda: [getattr(item, "closed", False) for item in (sys.stdin, sys.stdout, sys.stderr)],
}


@functools.cache
def _functions_before() -> dict[str, dict[str, Any]]:
    """The functions before the first run of this process: after a patch it serves no other run."""
    return {
        owner_name: {name: item for name, item in vars(owner).items() if issubclass(type(item), _FUNCTIONS)}
        for owner_name, owner in _PATCHABLE.items()
    }


@functools.cache
def _ids_before() -> frozenset[int]:
    """Identities of these functions, which live as long as the process."""
    return frozenset(id(item) for functions in _functions_before().values() for item in functions.values())


def _is_by_pytorch(item: Any) -> bool:
    """Whether a new function is PyTorch's own: its compiler replaces some of PyTorch's when it is first used."""
    code = getattr(getattr(item, "__func__", item), "__code__", None)
    # functools.wraps copies the name of the module, but not the code.
    is_by_user = code is not None and not code.co_filename.startswith((_PYTORCH, "<"))
    return _is_of(item, ("torch",)) and not is_by_user


_PYTORCH = os.path.dirname(torch.__file__)

_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    staticmethod, classmethod, property, type,
)  # fmt: skip


def _is_of(item: Any, packages: Iterable[str]) -> bool:
    module = str(getattr(item, "__module__", ""))
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _is_of_runtime(thread: threading.Thread) -> bool:
    # A thread that PyTorch has started is no thread of Python's, which only gives it a name.
    return isinstance(thread, threading._DummyThread) or any(
        _is_of(item, _RUNTIME) for item in (type(thread), getattr(thread, "_target", None))
    )


def _title(thread: threading.Thread) -> str:
    target = re.fullmatch(r"Thread-\d+ \((.*)\)", thread.name)
    return target[1] if target else re.sub(r"[-_]?\d+$", "", thread.name)


_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Whether the kernel lists the children of a thread, as Linux does mostly."""


def _children() -> set[int]:
    """Pids of the child processes."""
    if not _LISTS_CHILDREN:
        return {child.pid for child in psutil.Process().children()}
    found: set[int] = set()
    # psutil examines all processes of the machine, for milliseconds. Children of a thread that has ended are those of
    # another one, usually of the main thread.
    for thread in threading.enumerate():
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{thread.native_id}/children", "rb") as file:
            found.update(map(int, file.read().split()))
    return found


def _end_child(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
        # A fork has the command line of this process.
        if command != psutil.Process().cmdline() and any(helper in " ".join(command) for helper in _HELPERS):
            return
        family = [*process.children(recursive=True), process]
        for member in family:
            # It may have ended, and it may belong to another user.
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                member.kill()
        psutil.wait_procs(family, timeout=JOIN_TIMEOUT_S)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return
