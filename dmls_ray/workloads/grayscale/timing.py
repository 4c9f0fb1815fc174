"""Times of passes over a set of images, and of copies of as many bytes, taken in turn with the passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from dmls_ray.records.provenance import last_level_cache_mib
from dmls_ray.training.clocks import synchronize
from dmls_ray.training.marks import elapsed_ms, mark
from dmls_ray.training.memory import MIB
from dmls_ray.workloads.grayscale.images import Images

LEAST_PASSES = 5
_MOST_PASSES = 1000
_WARM_PASSES = 2


def time_passes(
    run: Callable[[], Any], device: torch.device, seconds: float, progress: Callable[[], None], then: Any = None
) -> tuple[list[float], list[float]]:
    """Time passes by the host's clock, or on a GPU by events, after some that are not counted.

    Args:
        run: a pass.
        device: what runs it.
        seconds: how long to go on, `LEAST_PASSES` at least.
        progress: called after each pass.
        then: run after each pass, so that drift affects both equally; None: nothing.

    Returns:
        Milliseconds of each pass, and of what was run in turn.
    """
    for _ in range(_WARM_PASSES):
        run()
        if then is not None:
            then()
        progress()
    synchronize(device)
    passes: list[float] = []
    in_turn: list[float] = []
    began = time.perf_counter()
    while len(passes) < LEAST_PASSES or (time.perf_counter() - began < seconds and len(passes) < _MOST_PASSES):
        passes.append(_milliseconds(run, device))
        if then is not None:
            in_turn.append(_milliseconds(then, device))
        progress()
    return passes, in_turn


def _milliseconds(run: Callable[[], Any], device: torch.device) -> float:
    began = mark(device)
    run()
    ended = mark(device)
    synchronize(device)
    return elapsed_ms(began, ended)


def copy_of(images: Images) -> Callable[[], Any]:
    """A copy that reads and writes as many bytes as a pass over these images, by the same threads."""
    count = images.bytes_moved // 2
    source = torch.zeros(count, dtype=torch.uint8, device=images.pixels.device)
    source.random_(0, 256)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def cache_mib(device: torch.device) -> float | None:
    """The size of the last-level cache of a device; None if it is unknown."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).L2_cache_size) / MIB
    return last_level_cache_mib()


def transfers_of(images: Images, seconds: float, progress: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Milliseconds of copies of the pixels to a GPU, and of the grey levels from it, with pinned memory on the host."""
    device = images.pixels.device
    pixels, grey = (torch.empty_like(item, device="cpu").pin_memory() for item in (images.pixels, images.grey))
    pixels.copy_(images.pixels)
    return time_passes(
        lambda: images.pixels.copy_(pixels, non_blocking=True), device, seconds, progress,
        then=lambda: grey.copy_(images.grey, non_blocking=True),
    )  # fmt: skip
