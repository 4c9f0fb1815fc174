"""One run: a set of images turned grey by one implementation, timed, and compared with the reference."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.grayscale.config import TIMES_THE_CACHE, GrayscaleConfig
from dmls_ray.workloads.user_function.schema import UserFunctionConfig

LOOPED = 4
"""Images that the Python loops go over without --full."""

MOST_APART = 1
"""Allowed difference from the reference in grey levels: rounding and the digits of the weights may differ."""


def run_rank(config: UserFunctionConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Measure `turn_grey` on this rank as a training function is measured."""
    from dmls_ray.workloads.grayscale.workload import GrayscaleWorkload
    from dmls_ray.workloads.user_function.rank_run import run_user_function

    return run_user_function(
        config, rank, emit, workload=GrayscaleWorkload(), load=lambda config: (turn_grey, GrayscaleConfig)
    )


def turn_grey(config: GrayscaleConfig, rank: RankInfo, emit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Turn images grey, over and over, and time it.

    Returns:
        `pass_ms`, the median of the timed passes over all images, and `pass_ms_p95`; `passes`; `timed_images`, fewer
        than all where the time was scaled; `images_per_s`; `gb_per_s`, bytes that a pass cannot but read and write
        (10^9 a second); `levels_apart`, from the float64 reference at most; `own_output` where the grey levels were
        allocated in each pass; `prepare_s`, of building or compiling; `set_mib` and `cache_mib`, of a set and of the
        last-level cache. Where the set is 4 times the cache or more and the output was allocated once:
        `copy_gb_per_s`, of a copy of as many bytes, and `of_copy`. On a GPU: `to_device_ms` and `from_device_ms`.
        `picture`: four images in colour, and as they became grey.

    Raises:
        UnavailableError: the implementation needs what is not on this machine.
        DataError: an image cannot be read.
        RuntimeError: the grey levels are wrong.
    """
    import numpy as np
    import torch

    from dmls_ray.training.memory import MIB
    from dmls_ray.workloads.grayscale import timing
    from dmls_ray.workloads.grayscale.images import Images, contact_sheet, levels_apart, load_pictures, reference
    from dmls_ray.workloads.grayscale.implementations import IMPLEMENTATIONS

    def progress() -> None:
        emit({"kind": "progress"})

    device = torch.device(rank.device)
    scaled = config.implementation == "python_loops" and not config.full and config.images > LOOPED
    pictures = load_pictures(LOOPED if scaled else config.images, config.image_size, config.pictures)
    progress()
    images = Images(pictures, planar=config.layout == "planar", device=device)
    began = time.perf_counter()
    run = IMPLEMENTATIONS[config.implementation](images)
    own_output = run() is not None
    prepare_s = time.perf_counter() - began
    progress()

    share = len(pictures) / config.images
    cache_mib = timing.cache_mib(device)
    from_memory = cache_mib is not None and images.bytes_moved >= TIMES_THE_CACHE * cache_mib * MIB
    bound = from_memory and not own_output
    passes, copies = timing.time_passes(
        run, device, config.timed_s, progress, then=timing.copy_of(images) if bound else None
    )
    pass_ms, p95 = (float(value) / share for value in np.percentile(passes, [50, 95]))
    values: dict[str, Any] = {
        "images_per_s": config.images / pass_ms * 1e3,
        "pass_ms": pass_ms,
        "pass_ms_p95": p95,
        "passes": len(passes),
        "timed_images": len(pictures),
        "gb_per_s": images.bytes_moved / share / pass_ms / 1e6,
        "own_output": own_output,
        "prepare_s": prepare_s,
        "set_mib": images.bytes_moved / share / MIB,
        "cache_mib": cache_mib,
    }
    if bound:
        values["copy_gb_per_s"] = images.bytes_moved / statistics.median(copies) / 1e6
        # By pairs: of what drifted from one pass to the next, a ratio of two medians would keep more.
        values["of_copy"] = statistics.median(b / a for a, b in zip(passes, copies, strict=True))
    if device.type == "cuda":
        to_device, from_device = timing.transfers_of(images, config.timed_s, progress)
        values |= {"to_device_ms": statistics.median(to_device), "from_device_ms": statistics.median(from_device)}

    images.grey.zero_()
    returned = run()
    grey = (images.grey if returned is None else returned).cpu().numpy()
    apart = levels_apart(grey, reference(pictures))
    if apart > MOST_APART:
        raise RuntimeError(f"{config.implementation} is {apart} grey levels from the reference; {MOST_APART} is right.")
    return values | {"levels_apart": apart, "picture": contact_sheet(pictures, grey)}
