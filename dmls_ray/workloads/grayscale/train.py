"""One run: a set of images turned grey by one implementation, timed, and compared with the reference."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dmls_ray.training.clocks import elapsed_ms, mark, synchronize
from dmls_ray.training.memory import MIB
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.grayscale.images import Images, contact_sheet, levels_apart, load_pictures, reference
from dmls_ray.workloads.grayscale.implementations import IMPLEMENTATIONS
from dmls_ray.workloads.grayscale.workload import GrayscaleConfig, GrayscaleWorkload
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import UserFunctionConfig

LOOPED = 4
"""Images that the Python loops go over without --full."""

MOST_APART = 1
"""Allowed difference from the reference in grey levels: rounding and the digits of the weights may differ."""

LEAST_PASSES = 5
_MOST_PASSES = 1000
_WARM_PASSES = 2


def run_rank(config: UserFunctionConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Measure `turn_grey` on this rank as a training function is measured."""
    return run_user_function(
        config, rank, emit, workload=GrayscaleWorkload(), load=lambda config: (turn_grey, GrayscaleConfig)
    )


def turn_grey(config: GrayscaleConfig, rank: RankInfo, emit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Turn images grey, over and over, and time it.

    Returns:
        `pass_ms`, the median of the timed passes over all images, and `pass_ms_p95`; `passes`; `timed_images`, fewer
        than all where the time was scaled; `images_per_s`; `gb_per_s`, bytes that a pass cannot but read and write
        (10^9 a second); `copy_gb_per_s`, of a copy of as many bytes, and `of_copy`, the ratio of both; `levels_apart`,
        from the float64 reference at most; `prepare_s`, of building or compiling; `set_mib`, of the set. On a GPU:
        `to_device_ms` and `from_device_ms`. `picture`: four images in colour, and as they became grey.

    Raises:
        UnavailableError: the implementation needs what is not on this machine.
        DataError: an image cannot be read.
        RuntimeError: the grey levels are wrong.
    """

    def progress() -> None:
        emit({"kind": "progress"})

    def times_of(run: Callable[[], Any]) -> list[float]:
        return time_passes(run, device, config.timed_s, progress)

    device = torch.device(rank.device)
    scaled = config.implementation == "python_loops" and not config.full and config.images > LOOPED
    pictures = load_pictures(LOOPED if scaled else config.images, config.image_size, config.pictures)
    progress()
    images = Images(pictures, planar=config.layout == "planar", device=device)
    began = time.perf_counter()
    run = IMPLEMENTATIONS[config.implementation](images)
    run()
    prepare_s = time.perf_counter() - began
    progress()

    share = len(pictures) / config.images
    pass_ms, p95 = (float(value) / share for value in np.percentile(times_of(run), [50, 95]))
    gb_per_s = images.bytes_moved / share / pass_ms / 1e6
    copy_gb_per_s = images.bytes_moved / statistics.median(times_of(copy_of(images))) / 1e6
    values: dict[str, Any] = {
        "images_per_s": config.images / pass_ms * 1e3,
        "pass_ms": pass_ms,
        "pass_ms_p95": p95,
        "timed_images": len(pictures),
        "gb_per_s": gb_per_s,
        "copy_gb_per_s": copy_gb_per_s,
        "of_copy": gb_per_s / copy_gb_per_s,
        "prepare_s": prepare_s,
        "set_mib": images.bytes_moved / share / MIB,
    }
    if device.type == "cuda":
        to_device, from_device = transfers_of(images)
        values["to_device_ms"] = statistics.median(times_of(to_device))
        values["from_device_ms"] = statistics.median(times_of(from_device))

    images.grey.zero_()
    returned = run()
    grey = (images.grey if returned is None else returned).cpu().numpy()
    apart = levels_apart(grey, reference(pictures))
    if apart > MOST_APART:
        raise RuntimeError(f"{config.implementation} is {apart} grey levels from the reference; {MOST_APART} is right.")
    return values | {"levels_apart": apart, "picture": contact_sheet(pictures, grey)}


def time_passes(
    run: Callable[[], Any], device: torch.device, seconds: float, progress: Callable[[], None]
) -> list[float]:
    """Milliseconds of each pass by the host's clock, or on a GPU by events, after some that are not counted.

    Args:
        run: a pass.
        device: what runs it.
        seconds: how long to go on, `LEAST_PASSES` at least.
        progress: called after each pass.
    """
    for _ in range(_WARM_PASSES):
        run()
        progress()
    synchronize(device)
    passes: list[float] = []
    stop = time.perf_counter() + seconds
    while len(passes) < LEAST_PASSES or (time.perf_counter() < stop and len(passes) < _MOST_PASSES):
        began = mark(device)
        run()
        ended = mark(device)
        synchronize(device)
        passes.append(elapsed_ms(began, ended))
        progress()
    return passes


def copy_of(images: Images) -> Callable[[], Any]:
    """A copy that reads and writes as many bytes as a pass over these images, by the same threads."""
    count = images.bytes_moved // 2
    source = torch.zeros(count, dtype=torch.uint8, device=images.pixels.device)
    source.random_(0, 256)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def transfers_of(images: Images) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Copies of the pixels to a GPU, and of the grey levels from it, with pinned memory on the host."""
    pixels, grey = (torch.empty_like(item, device="cpu").pin_memory() for item in (images.pixels, images.grey))
    pixels.copy_(images.pixels)
    return (
        lambda: images.pixels.copy_(pixels, non_blocking=True),
        lambda: grey.copy_(images.grey, non_blocking=True),
    )
