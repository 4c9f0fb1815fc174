"""The settings of PyTorch, and the state of libraries that train with it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from dmls_ray.training.compat import (
    backward_uses_threads,
    global_hooks,
    remove_saved_tensor_hooks,
    saved_tensor_hooks,
)
from dmls_ray.training.process_state.setting import Setting, attributes

_DENORMAL, _ONE = 1e-310, 1.0


def torch_settings() -> Iterable[Setting]:
    """The settings, those first on which others depend."""
    yield Setting("process group", dist.is_initialized, _set_process_group)
    # A list of collectives or tensors cannot be compared, and these dictionaries may hold any.
    yield Setting("state of accelerate", _accelerate, _set_accelerate, comparable=False)

    yield Setting("default device", torch.get_default_device, _set_default_device, comparable=False)
    yield Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield Setting("gradient mode", torch.is_grad_enabled, torch.set_grad_enabled)
    yield Setting("anomaly detection", _anomaly_detection, lambda modes: torch.autograd.set_detect_anomaly(*modes))
    yield Setting("threads of backward", backward_uses_threads, torch.autograd.set_multithreading_enabled)
    yield Setting("threads", torch.get_num_threads, torch.set_num_threads)
    yield Setting("flushing of denormal numbers", _flushes_denormals, torch.set_flush_denormal)
    yield Setting("sharing strategy", torch.multiprocessing.get_sharing_strategy, _set_sharing_strategy)
    yield Setting("generator of PyTorch", torch.get_rng_state, torch.set_rng_state, comparable=False)
    yield Setting("stream", _stream, _set_stream)

    yield Setting("deterministic algorithms", _deterministic_algorithms, _use_deterministic_algorithms)
    yield from attributes(torch.utils.deterministic, "fill_uninitialized_memory")
    cudnn = ("enabled", "deterministic", "benchmark", "benchmark_limit")
    yield from attributes(torch.backends.cudnn, *cudnn, prefix="cudnn.")
    yield from attributes(torch.backends.mkldnn, "enabled", "deterministic", prefix="mkldnn.")
    yield from attributes(torch.backends.opt_einsum, "enabled", "strategy", prefix="opt_einsum.")
    cuda = torch.backends.cuda
    reduced = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    yield from attributes(cuda.matmul, *reduced)
    for kind in ("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp"):
        yield Setting(kind, getattr(cuda, f"{kind}_enabled"), getattr(cuda, f"enable_{kind}"))

    for device in ("cpu", "cuda"):
        is_enabled, set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled
        get_dtype, set_dtype = torch.get_autocast_dtype, torch.set_autocast_dtype
        at = functools.partial
        yield Setting(f"autocast on {device}", at(is_enabled, device), at(set_enabled, device))
        yield Setting(f"dtype of autocast on {device}", at(get_dtype, device), at(set_dtype, device))
    yield Setting("cache of autocast", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled)

    yield Setting("global hooks", lambda: [dict(hooks) for hooks in global_hooks()], _set_global_hooks)
    yield Setting("hooks of saved tensors", saved_tensor_hooks, _set_saved_tensor_hooks)


def _set_process_group(before: bool) -> None:
    # A group that was there before the run, and is not any more, has no ranks to be made again with.
    if not before:
        dist.destroy_process_group()


def _accelerate_states() -> list[dict[str, Any]]:
    """What accelerate's objects share: made once in a process, with the rank and the world size of that time."""
    state = sys.modules.get("accelerate.state")
    if state is None:
        return []
    return [getattr(state, name)._shared_state for name in ("PartialState", "AcceleratorState", "GradientState")]


def _accelerate() -> list[dict[str, Any]]:
    return [dict(state) for state in _accelerate_states()]


def _set_accelerate(before: Sequence[dict[str, Any]]) -> None:
    for number, state in enumerate(_accelerate_states()):
        state.clear()
        state.update(before[number] if before else {})


def _set_default_device(before: torch.device) -> None:
    # Setting a device, even the CPU, slows every call of PyTorch down.
    torch.set_default_device(None if before.type == "cpu" else before)


def _anomaly_detection() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _flushes_denormals() -> bool:
    # The switch is the processor's, so Python's numbers show it.
    return _DENORMAL * _ONE == 0.0


def _set_sharing_strategy(before: str) -> None:
    torch.multiprocessing.set_sharing_strategy(before)


def _stream() -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_initialized() else None


def _set_stream(before: Any) -> None:
    torch.cuda.set_stream(torch.cuda.default_stream() if before is None else before)


def _deterministic_algorithms() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _use_deterministic_algorithms(before: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _set_global_hooks(before: Sequence[dict[Any, Any]]) -> None:
    for hooks, former in zip(global_hooks(), before, strict=True):
        hooks.clear()
        hooks.update(former)


def _set_saved_tensor_hooks(before: object) -> None:
    while saved_tensor_hooks() != before:
        remove_saved_tensor_hooks()
