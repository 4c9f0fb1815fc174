"""What a run leaves behind does not reach the next run of its process: it is undone, or named."""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.util
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn

from dmls_ray.launchers.inline import run_inline
from dmls_ray.records.identity import Identity
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.util.source_digest import source_digests
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import UserFunctionConfig
from tests.new_processes import call_in_new_process, run_ranks
from tests.training.process_state.leaving import REMAINING, UNDONE

CONFIG = UserFunctionConfig(train="tests:leaving", device="cpu")


def run(function: Callable[[], Any]) -> RankResult:
    """Run a function without arguments as a training function in this process."""

    def train(*_: Any) -> dict[str, Any]:
        function()
        return {}

    return run_inline(CONFIG, train=functools.partial(run_user_function, load=lambda _: (train, None)))


def run_remaining(name: str) -> RankResult:
    return run(REMAINING[name][0])


def trained() -> str:
    """Digest of the weights after some steps, with random numbers of all kinds."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=np.random.rand() + random.random())
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.randn(3, 4)).square().sum() + torch.tensor(1e-40)).backward()
        optimizer.step()
    content = b"".join(item.detach().contiguous().numpy().tobytes() for item in model.parameters())
    return hashlib.sha256(content).hexdigest()


def state() -> dict[str, str]:
    """What else a run can see of its process."""
    accelerate = sys.modules.get("accelerate.state")
    cuda, cudnn, root = torch.backends.cuda, torch.backends.cudnn, logging.getLogger()
    seen = {
        "environment": sorted(os.environ.items()),
        "folder": os.getcwd(),
        "mask": Path("/proc/self/status").read_text().partition("Umask:")[2].split()[0],
        "path": sys.path,
        "arguments": sys.argv,
        "sockets": socket.getdefaulttimeout(),
        "group": dist.is_initialized(),
        "dtype": torch.get_default_dtype(),
        "device": torch.empty(1).device,
        "backward": torch._C._is_multithreading_enabled(),
        "modes": torch._C._len_torch_function_stack(),
        "grad": (torch.is_grad_enabled(), torch.is_anomaly_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "filled": torch.utils.deterministic.fill_uninitialized_memory,
        "cudnn": (cudnn.enabled, cudnn.deterministic, cudnn.benchmark),
        "mkldnn": torch.backends.mkldnn.enabled,
        "attention": (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled()),
        "reduced precision": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "cache of autocast": torch.is_autocast_cache_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "denormal": torch.full((), 1e-310, dtype=torch.float64).mul(1).item(),
        "threads of PyTorch": torch.get_num_threads(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "children": sorted(child.name() for child in psutil.Process().children()),
        "warnings": (warnings.filters, warnings.showwarning.__module__),
        "logging": (root.handlers, root.level, root.manager.disable),
        "signals": [signal.getsignal(item) for item in (signal.SIGUSR1, signal.SIGTERM)],
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "errors of NumPy": np.geterr(),
        "python": (sys.getrecursionlimit(), sys.gettrace(), sys.stdout.name, sys.excepthook.__module__),
        "garbage": (gc.isenabled(), gc.get_threshold(), resource.getrlimit(resource.RLIMIT_NOFILE)),
        "locale": locale.setlocale(locale.LC_ALL),
        "accelerate": getattr(accelerate, "PartialState", None) and accelerate.PartialState._shared_state,
    }
    return {name: repr(value) for name, value in seen.items() if value is not None}


def next_run() -> dict[str, str]:
    """What the next run of this process computes and sees."""
    seen: dict[str, str] = {}

    def look() -> None:
        seen.update(state(), trained=trained())

    result = run(look)
    assert result.outcome is Outcome.OK, result.traceback
    assert result.left_behind == ()
    return seen


def leave_each(names: list[str]) -> dict[str, tuple[RankResult, dict[str, str]]]:
    """For each of them, one after the other in this process: the run that leaves it behind, and the next run."""
    return {name: (run(UNDONE[name]), next_run()) for name in names}


AVAILABLE = [name for name in UNDONE if name != "accelerate's state" or importlib.util.find_spec("accelerate")]


@pytest.fixture(scope="module")
def fresh() -> dict[str, str]:
    """The run in a new process."""
    seen: dict[str, str] = call_in_new_process(next_run)
    return seen


@pytest.fixture(scope="module")
def after_each() -> dict[str, tuple[RankResult, dict[str, str]]]:
    names = [name for name in AVAILABLE if name != "accelerate's state"]
    found: dict[str, tuple[RankResult, dict[str, str]]] = call_in_new_process(functools.partial(leave_each, names))
    return found


@pytest.mark.parametrize("name", [name for name in AVAILABLE if name != "accelerate's state"])
def test_what_a_run_leaves_behind_is_undone_and_the_next_run_equals_that_of_a_new_process(
    name: str, after_each: dict[str, tuple[RankResult, dict[str, str]]], fresh: dict[str, str]
) -> None:
    result, seen = after_each[name]
    assert result.outcome is Outcome.OK, result.traceback
    assert result.left_behind == ()
    assert seen == fresh


@pytest.mark.slow  # accelerate loads for seconds
def test_the_state_of_accelerate_is_undone() -> None:
    pytest.importorskip("accelerate", reason="needs pip install 'dmls_ray[examples]'")
    found = call_in_new_process(functools.partial(leave_each, ["accelerate's state"]))
    result, seen = found["accelerate's state"]
    assert result.outcome is Outcome.OK, result.traceback
    assert result.left_behind == ()
    assert seen["accelerate"] == "{}"


@pytest.mark.parametrize("name", REMAINING)
def test_what_cannot_be_undone_is_named(name: str) -> None:
    _, title = REMAINING[name]
    result = call_in_new_process(functools.partial(run_remaining, name))
    assert result.outcome is Outcome.OK, result.traceback
    assert result.left_behind == (title,)


class Tee:
    """An output with no more than `print` needs."""

    def write(self, text: str) -> None:
        sys.__stdout__.write(text)

    def flush(self) -> None:
        sys.__stdout__.flush()


def run_with_tee() -> RankResult:
    sys.stdout = Tee()
    return run(lambda: print("to the user's stream"))


def test_a_stream_of_the_user_without_closed_is_no_error() -> None:
    result = call_in_new_process(run_with_tee)
    assert (result.outcome, result.left_behind) == (Outcome.OK, ())


def raise_after_leaving() -> None:
    UNDONE["a default dtype"]()
    REMAINING["a thread"][0]()
    raise ArithmeticError("a fault")


def fail_and_run() -> tuple[RankResult, torch.dtype]:
    return run(raise_after_leaving), torch.get_default_dtype()


def test_a_run_that_fails_is_undone_too() -> None:
    result, dtype = call_in_new_process(fail_and_run)
    assert (result.outcome, result.reason) == (Outcome.ERROR, "ArithmeticError: a fault")
    assert result.left_behind == ("a thread (feeder)",)
    assert dtype is torch.float32


class Cancelled(BaseException):
    """As libraries derive theirs, so that `except Exception` does not catch them."""


def cancel() -> None:
    raise Cancelled("by a library")


def test_an_exception_that_is_no_exception_class_is_an_error_with_its_name() -> None:
    result = run(cancel)
    assert (result.outcome, result.reason) == (Outcome.ERROR, "Cancelled: by a library")


def destroy_group(config: UserFunctionConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """End as programs for torchrun do."""

    def train(*_: Any) -> dict[str, float]:
        total = torch.ones(())
        dist.all_reduce(total)
        dist.destroy_process_group()
        return {"total": float(total)}

    return run_user_function(config, rank, emit, load=lambda _: (train, None))


def test_a_function_may_destroy_the_process_group_of_its_run() -> None:
    results = run_ranks(CONFIG.replace(world_size=2), train=destroy_group)
    assert [(item.outcome, item.run.get("total")) for item in results] == [(Outcome.OK, 2.0)] * 2, results


SETS_AT_IMPORT = """
import os, torch
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
os.environ["SET_AT_IMPORT"] = "yes"

def train(config, rank, emit):
    assert os.environ["SET_AT_IMPORT"] == "yes"
    return {"drawn": float(torch.rand(())), "bytes": torch.ones(()).itemsize}
"""


def run_module_twice(folder: str) -> list[Any]:
    os.chdir(folder)
    identity = Identity(modules=("sets_at_import",), code=source_digests(["sets_at_import"]))
    config = CONFIG.replace(train="sets_at_import:train")
    runs = [run_inline(config, train=run_user_function, identity=identity) for _ in range(2)]
    return [(item.run["drawn"], item.run["bytes"]) for item in runs]


def test_what_a_module_sets_when_it_is_imported_holds_in_each_run(tmp_path: Path) -> None:
    (tmp_path / "sets_at_import.py").write_text(SETS_AT_IMPORT)
    first, second = call_in_new_process(functools.partial(run_module_twice, str(tmp_path)))
    assert first == second
    assert first[1] == 8
