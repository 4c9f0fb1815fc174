"""One run: a set of images turned grey by one implementation, timed, and compared with the reference."""

from __future__ import annotations

import base64
import functools
import io
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.marks import elapsed_ms, marker, synchronize
from dmls_ray.training.memory import MIB
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.grayscale.images import Images
from dmls_ray.workloads.grayscale.implementations import BLUE, GREEN, IMPLEMENTATIONS, RED
from dmls_ray.workloads.grayscale.workload import GrayscaleConfig, GrayscaleWorkload, files_in
from dmls_ray.workloads.image_files import read_rgb
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import UserFunctionConfig

LOOPED = 4
"""Images that the Python loops go over without --full."""

TIMES_THE_CACHE = 4
"""Images at least this many times as large as the last-level caches are read from memory."""

MOST_APART = 1
"""Allowed difference from the reference in grey levels: rounding and the digits of the weights may differ."""

LEAST_PASSES = 5
_MOST_PASSES = 1000
_WARM_PASSES = 2

_AT_ONCE = 2**24
"""Pixels whose float64 reference is computed at once."""
_SHEET_IMAGES = 4
"""Images of a contact sheet."""
_SHEET_SIDE = 64
"""Pixels of each side of an image on a contact sheet."""


def convert_images(config: UserFunctionConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """Measure `turn_grey` on this rank as a training function is measured."""
    return run_user_function(
        config, rank, emit, workload=GrayscaleWorkload(), load=lambda config: (turn_grey, GrayscaleConfig)
    )


def turn_grey(config: GrayscaleConfig, rank: RankInfo, emit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Turn images grey, over and over, and time it.

    Returns:
        `pass_ms`, the median of the timed passes over all images, and `pass_ms_p95`; `passes`; `timed_images`, fewer
        than all where the time was scaled; `images_per_s`; `gb_per_s`, bytes that a pass must read and write
        (10^9 a second); `levels_apart`, from the float64 reference at most; `prepare_s`, of building or compiling;
        `set_mib`, of the set. Where images are read from memory, into an output that was allocated once:
        `copy_gb_per_s`, of a copy of as many bytes, and `of_copy`, the ratio of both. On a GPU: `to_device_ms` and
        `from_device_ms`. `picture`: four images in colour, and as they became grey.

    Raises:
        UnavailableError: the implementation needs what is not on this machine.
        DataError: an image cannot be read.
        RuntimeError: the grey levels are wrong.
    """

    def progress() -> None:
        emit({"kind": "progress"})

    device = torch.device(rank.device)
    times_of = functools.partial(time_passes, device=device, seconds=config.timed_s, progress=progress)
    scaled = config.implementation == "python_loops" and not config.full and config.images > LOOPED
    pictures = load_pictures(LOOPED if scaled else config.images, config.image_size, config.pictures)
    progress()
    images = Images(pictures, planar=config.layout == "planar", device=device)
    began = time.perf_counter()
    run = IMPLEMENTATIONS[config.implementation](images)
    has_own_output = run() is not None
    prepare_s = time.perf_counter() - began
    progress()

    share = len(pictures) / config.images
    pass_ms, p95 = (float(value) / share for value in np.percentile(times_of(run), [50, 95]))
    gb_per_s = images.bytes_moved / share / pass_ms / 1e6
    values: dict[str, Any] = {
        "images_per_s": config.images / pass_ms * 1e3,
        "pass_ms": pass_ms,
        "pass_ms_p95": p95,
        "timed_images": len(pictures),
        "gb_per_s": gb_per_s,
        "prepare_s": prepare_s,
        "set_mib": images.bytes_moved / share / MIB,
    }
    if images.bytes_moved >= TIMES_THE_CACHE * last_level_cache_bytes(device) and not has_own_output:
        values["copy_gb_per_s"] = images.bytes_moved / statistics.median(times_of(copy_of(images))) / 1e6
        values["of_copy"] = gb_per_s / values["copy_gb_per_s"]
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
    mark, stop = marker(device), time.perf_counter() + seconds
    while len(passes) < LEAST_PASSES or (time.perf_counter() < stop and len(passes) < _MOST_PASSES):
        began = mark()
        run()
        ended = mark()
        synchronize(device)
        passes.append(elapsed_ms(began, ended))
        progress()
    return passes


def last_level_cache_bytes(device: torch.device) -> float:
    """Size of the last-level caches that this process may use; infinite where it is not known."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).L2_cache_size)
    # A processor may have several, each for a few of its cores.
    sizes: dict[str, float] = {}
    for cpu in os.sched_getaffinity(0) if sys.platform == "linux" else ():
        for size in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*/size"))[-1:]:
            text = size.read_text(encoding="ascii").strip().removesuffix("K")
            sizes[size.with_name("shared_cpu_list").read_text(encoding="ascii")] = float(text)
    return sum(sizes.values()) * 2**10 or math.inf


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


def load_pictures(count: int, size: int, folder: str | None = None) -> NDArray[np.uint8]:
    """So many pictures of size x size pixels, the same at every call; where there are fewer they come again.

    Args:
        count: pictures.
        size: pixels a side.
        folder: with images, of which the largest square in their middle is taken; without it, cuts of the two
            photographs that scikit-learn brings along.

    Returns:
        count x size x size x 3.

    Raises:
        DataError: an image cannot be read.
    """
    source = _cuts(size)
    if folder is not None:
        source = (np.asarray(ImageOps.fit(read_rgb(path), (size, size))) for path in files_in(Path(folder)))
    pictures = np.empty((count, size, size, 3), dtype=np.uint8)
    for number, picture in zip(range(count), itertools.cycle(source)):
        pictures[number] = picture
    return pictures


def _cuts(size: int) -> Iterator[NDArray[np.uint8]]:
    """Cuts of the two photographs, one of each in turn, from places that are the same at every call."""
    from sklearn.datasets import load_sample_images

    photographs = []
    for pixels in load_sample_images().images:
        photograph = Image.fromarray(pixels)
        factor = max(1, size / min(photograph.size))
        enlarged = math.ceil(photograph.width * factor), math.ceil(photograph.height * factor)
        photographs.append(np.asarray(photograph.resize(enlarged)))
    places = np.random.default_rng(0)
    for picture in itertools.cycle(photographs):
        top, left = (int(places.integers(room - size + 1)) for room in picture.shape[:2])
        yield picture[top : top + size, left : left + size]


def reference(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The grey levels of pictures, images x height x width x 3, in float64 and rounded to the nearest."""
    flat = pictures.reshape(-1, 3)
    levels = np.empty(len(flat), dtype=np.uint8)
    for start in range(0, len(flat), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        levels[part] = np.rint(flat[part].astype(np.float64) @ np.array([RED, GREEN, BLUE]))
    return levels.reshape(pictures.shape[:-1])


def levels_apart(levels: NDArray[np.uint8], expected: NDArray[np.uint8]) -> int:
    """The largest difference between the grey levels of two sets of pictures."""
    return int(np.max(np.abs(levels.astype(np.int16) - expected)))


def contact_sheet(pictures: NDArray[np.uint8], grey: NDArray[np.uint8]) -> str:
    """The first images in colour and below them in grey, as a JPEG in base64, small enough for a record.

    Args:
        pictures: images x height x width x 3.
        grey: the same images in grey, images x height x width.
    """
    pairs = list(zip(pictures, grey, strict=True))[:_SHEET_IMAGES]
    sheet = Image.new("RGB", (len(pairs) * _SHEET_SIDE, 2 * _SHEET_SIDE))
    for column, pair in enumerate(pairs):
        for row, pixels in enumerate(pair):
            small = Image.fromarray(pixels).convert("RGB").resize((_SHEET_SIDE, _SHEET_SIDE))
            sheet.paste(small, (column * _SHEET_SIDE, row * _SHEET_SIDE))
    file = io.BytesIO()
    sheet.save(file, format="JPEG", quality=75)
    return base64.b64encode(file.getvalue()).decode()
