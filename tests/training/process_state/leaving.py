"""Training functions that leave something behind in their process, by its name."""

from __future__ import annotations

import contextlib
import functools
import gc
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

from dmls_ray.training.rank import Emit, RankInfo

_kept: list[Any] = []
"""What a function keeps in a global variable."""


def _a_process_group() -> None:
    # As a program for torchrun does, and Hugging Face's Trainer where it finds torchrun's environment.
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def _environment() -> None:
    os.environ["LEFT"] = "behind"
    os.environ.pop("HOME", None)
    os.environ["PATH"] = "/nowhere"


def _removed_working_directory() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)


def _signals() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    signal.setitimer(signal.ITIMER_REAL, 3600)


def _warnings() -> None:
    warnings.simplefilter("error")
    warnings.catch_warnings().__enter__()
    logging.captureWarnings(True)


def _logging() -> None:
    logging.basicConfig(level=logging.DEBUG)
    logging.disable(logging.ERROR)


def _generators() -> None:
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)


def _determinism() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.enabled = torch.backends.mkldnn.enabled = False


def _autocast() -> None:
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_cache_enabled(False)


def _attention() -> None:
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def _module_hooks() -> None:
    nn.modules.module.register_module_forward_hook(lambda module, inputs, output: output * 2)
    nn.modules.module.register_module_full_backward_hook(lambda module, inputs, outputs: None)
    nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: None)


def _optimizer_hooks() -> None:
    def grow(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(2)

    register_optimizer_step_post_hook(grow)


def _saved_tensor_hooks() -> None:
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor * 2, lambda tensor: tensor)
    for _ in range(2):
        hooks.__enter__()


def _a_child_process() -> None:
    _kept.append(subprocess.Popen(["sleep", "3600"]))
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,), daemon=True)
    process.start()
    _kept.append(process)


def _python() -> None:
    sys.setrecursionlimit(12_345)
    sys.settrace(lambda *_: None)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it stays open
    sys.excepthook = lambda *_: None
    gc.disable()
    gc.set_threshold(1)
    locale.setlocale(locale.LC_ALL, "C")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 500), hard))


def _a_late_change() -> None:
    def change() -> None:
        while os.environ.get("LEFT"):  # until it is set back for the first time
            time.sleep(0.01)
        os.environ["LATE"] = "yes"
        torch.set_default_dtype(torch.float64)

    os.environ["LEFT"] = "behind"
    threading.Thread(target=change).start()


def _accelerate() -> None:
    from accelerate import Accelerator

    _kept.append(Accelerator(cpu=True, gradient_accumulation_steps=7))


def _bar() -> None:
    from tqdm import tqdm

    with contextlib.redirect_stderr(open(os.devnull, "w")):
        for _ in tqdm(range(2)):
            pass


UNDONE: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "a process group": _a_process_group,
    "environment variables": _environment,
    "a working directory": lambda: os.chdir("/"),
    "a working directory that was removed": _removed_working_directory,
    "a mask of new files": lambda: os.umask(0o077),
    "a search path": lambda: sys.path.insert(0, "/left"),
    "arguments": lambda: sys.argv.append("--left"),
    "signals": _signals,
    "warnings filters": _warnings,
    "handlers of logging": _logging,
    "random generators": _generators,
    "a default dtype": lambda: torch.set_default_dtype(torch.float64),
    "a default device": lambda: torch.set_default_device("meta"),
    "the default device as default": lambda: torch.set_default_device("cpu"),
    "gradients switched off": lambda: torch.set_grad_enabled(False),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "flags of determinism": _determinism,
    "autocast": _autocast,
    "flags of attention": _attention,
    "flushed denormal numbers": lambda: torch.set_flush_denormal(True),
    "numbers of threads": lambda: torch.set_num_threads(3),
    "a backward pass in its thread alone": lambda: torch.autograd.set_multithreading_enabled(False),
    "hooks of modules": _module_hooks,
    "hooks of optimizers": _optimizer_hooks,
    "hooks of saved tensors": _saved_tensor_hooks,
    "a start method of processes": lambda: multiprocessing.set_start_method("spawn", force=True),
    "floating-point errors of NumPy": lambda: np.seterr(all="raise"),
    "child processes": _a_child_process,
    "settings of Python": _python,
    "a timeout of sockets": lambda: socket.setdefaulttimeout(5.0),
    "a precision of matrix products": lambda: torch.set_float32_matmul_precision("medium"),
    "accelerate's state": _accelerate,
    "tqdm's monitor": _bar,
    "what a thread changes before it ends": _a_late_change,
}
"""What is undone."""


class _Doubling(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def _a_patch() -> None:
    nn.functional.linear = lambda *arguments: torch.zeros(3, 4, requires_grad=True)


def _a_patched_class() -> None:
    nn.Linear.forward = lambda self, inputs: inputs  # type: ignore[method-assign]


def _a_wrapped_function() -> None:
    relu = nn.functional.relu

    @functools.wraps(relu)
    def doubled(*arguments: Any, **options: Any) -> torch.Tensor:
        return 2 * relu(*arguments, **options)

    nn.functional.relu = doubled


def _another_of_pytorch() -> None:
    nn.functional.relu = nn.functional.gelu


def _another_method() -> None:
    nn.Linear.forward = nn.Identity.forward  # type: ignore[method-assign, assignment]


def _inference() -> None:
    _kept.append(torch.inference_mode())
    _kept[-1].__enter__()


def _profile() -> None:
    _kept.append(torch.profiler.profile())
    _kept[-1].__enter__()


def _another_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        os.nice(1)
    else:
        os.sched_setaffinity(0, cores[:1])


REMAINING: dict[str, tuple[Callable[[], Any], str]] = {
    "a thread": (
        lambda: threading.Thread(target=time.sleep, args=(3600,), daemon=True, name="feeder-7").start(),
        "a thread (feeder)",
    ),
    "a patch": (_a_patch, "a patch of torch.nn.functional.linear"),
    "a patched class": (_a_patched_class, "a patch of torch.nn.Linear.forward"),
    "a wrapped function": (_a_wrapped_function, "a patch of torch.nn.functional.relu"),
    "another function of PyTorch": (_another_of_pytorch, "a patch of torch.nn.functional.relu"),
    "another method of PyTorch": (_another_method, "a patch of torch.nn.Linear.forward"),
    "a patched initialization": (
        lambda: setattr(nn.init, "ones_", nn.init.zeros_),
        "a patch of torch.nn.init.ones_",
    ),
    "a closed output": (lambda: sys.stdout.close(), "a closed stream"),
    "a mode": (lambda: _Doubling().__enter__(), "a mode that intercepts calls of PyTorch"),
    "inference mode": (_inference, "inference mode"),
    "a profiler": (_profile, "a profiler"),
    "a priority": (lambda: os.nice(1), "another priority"),
}
"""What cannot be undone, and its name in the note."""


def train(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, float]:
    """Train a little, then leave behind what the configuration names."""
    model = nn.Linear(4, 1)
    if rank.world_size > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().sum()
        loss.backward()
        optimizer.step()
    name = config["leaves"]
    if name == "no group" and rank.world_size > 1:
        dist.destroy_process_group()
    elif name in UNDONE and not (name == "a process group" and rank.world_size > 1):
        UNDONE[name]()
    elif name in REMAINING:
        REMAINING[name][0]()
    return {"train_loss": float(loss.detach())}
