"""Decoded images on disk: made once a machine, then mapped into memory by every rank that asks.

<cache>/decoded/<data set>-<key>/train_images.npy   samples x channels x height x width, uint8 (float32 for the
user's own)
                                 train_labels.npy   int64
                                 test_images.npy, test_labels.npy, meta.json
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from PIL import Image

from dmls_ray.training.data.sources import Samples, Source, cache_root, find_source
from dmls_ray.util.errors import DataError

_LAYOUT = 1
_CHUNK = 256

UNREADABLE = (OSError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError)
"""What PIL raises where a file is no image, is broken, or would be of more pixels than a picture has."""


@dataclass(frozen=True)
class Decoded:
    """All samples of a data set as arrays."""

    train_images: NDArray[Any]
    train_labels: NDArray[np.int64]
    test_images: NDArray[Any]
    test_labels: NDArray[np.int64]
    classes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train_images.shape[1:]
        return int(channels), int(height), int(width)


@functools.cache
def source_of(name: str, data_dir: str | None) -> Source:
    """`find_source`, once a process: listing a folder of 60,000 files takes longer than many a run."""
    return find_source(name, data_dir)


def look_at(name: str, data_dir: str | None, image_size: int | None) -> tuple[tuple[int, int, int], int, int]:
    """Open a data set and read a sample of each half, for those who decode it later.

    Returns:
        The shape of its images (channels, height, width), its classes, and its training samples.

    Raises:
        DataError: the data are missing or unreadable.
    """
    source = source_of(name, data_dir)
    shapes = []
    for half in source.halves:
        try:
            shapes.append(as_chw(half[0][0], image_size).shape)
        except UNREADABLE as error:
            raise DataError(f"dataset={name}: the first sample cannot be read: {error}.") from error
    channels, height, width = shapes[0]
    return (channels, height, width), source.classes, len(source.halves[0])


@functools.cache
def decoded(name: str, data_dir: str | None, image_size: int | None) -> Decoded:
    """The data set as arrays, mapped from the cache, which is filled first where it must be.

    Raises:
        DataError: the data are missing or unreadable, or the images differ in shape.
    """
    source = source_of(name, data_dir)
    folder = _folder(name, source, image_size)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                _fill(folder, source, image_size)
    try:
        # Copy-on-write: pages are shared by all ranks of the machine, and PyTorch does not warn of a read-only array.
        # No objects: they would be made by whatever code a file names.
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            for name in ("train_images", "train_labels", "test_images", "test_labels")
        }
        classes = json.loads((folder / "meta.json").read_text())["classes"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(
            f"dataset={name}: its decoded images in {folder} cannot be read ({error}); remove that folder, "
            "and they are decoded anew."
        ) from error
    return Decoded(**arrays, classes=classes)


def is_decoded(name: str, data_dir: str | None, image_size: int | None) -> bool:
    """Whether the data set lies decoded in the cache.

    Raises:
        as `find_source`.
    """
    return _folder(name, source_of(name, data_dir), image_size).exists()


def _folder(name: str, source: Source, image_size: int | None) -> Path:
    key = hashlib.sha256(json.dumps([_LAYOUT, source.fingerprint, image_size]).encode()).hexdigest()[:16]
    return cache_root() / "decoded" / f"{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:40]}-{key}"


def _fill(folder: Path, source: Source, image_size: int | None) -> None:
    """Decode aside and rename, so that a cache folder that exists is whole."""
    aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        first = as_chw(source.halves[0][0][0], image_size)
        for split, samples in zip(("train", "test"), source.halves, strict=True):
            _decode(aside, split, samples, first, image_size, source.classes)
        (aside / "meta.json").write_text(json.dumps({"classes": source.classes, "fingerprint": source.fingerprint}))
        os.replace(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _decode(
    folder: Path, split: str, samples: Samples, first: NDArray[Any], image_size: int | None, classes: int
) -> None:
    count = len(samples)
    shape = (count, *first.shape)
    images = np.lib.format.open_memmap(folder / f"{split}_images.npy", mode="w+", dtype=first.dtype, shape=shape)
    labels = np.lib.format.open_memmap(folder / f"{split}_labels.npy", mode="w+", dtype=np.int64, shape=(count,))

    def fill(indices: Sequence[int]) -> None:
        for index in indices:
            try:
                image, label = samples[index]
                array = as_chw(image, image_size, channels=first.shape[0])
            except UNREADABLE as error:
                raise DataError(f"{split} image {index} cannot be read: {error}.") from error
            if array.shape != first.shape or array.dtype != first.dtype:
                raise DataError(
                    f"{split} image {index} is {_named(array)} and the first one is {_named(first)}; "
                    "set image_size to bring all to one size."
                )
            if not 0 <= int(label) < classes:
                raise DataError(f"{split} label {index} is {int(label)}; labels go from 0 to {classes - 1}.")
            images[index], labels[index] = array, int(label)

    # PIL decodes without the interpreter's lock, so threads do the work of processes here.
    with ThreadPoolExecutor(joblib.cpu_count()) as pool:
        list(pool.map(fill, [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]))
    images.flush()
    labels.flush()


def as_chw(image: Any, image_size: int | None, channels: int | None = None) -> NDArray[Any]:
    """An image as channels x height x width, uint8 (float32 stays float32), resized if asked.

    Args:
        image: a PIL image, a height x width (x channels) array, or a channels x height x width tensor.
        image_size: pixels a side, or None.
        channels: 1 or 3 to bring a PIL image to grey or to colour.
    """
    if isinstance(image, Image.Image):
        grey = channels == 1 or (channels is None and image.mode in ("1", "L", "I", "I;16", "F"))
        image = image.convert("L" if grey else "RGB")
        if image_size is not None and image.size != (image_size, image_size):
            image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
        array = np.asarray(image)
    elif hasattr(image, "permute"):  # a tensor is channels first already
        return _resized(np.asarray(image), image_size)
    else:
        array = np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3:
        array = np.ascontiguousarray(array.transpose(2, 0, 1))
    return _resized(array, image_size)


def _resized(array: NDArray[Any], image_size: int | None) -> NDArray[Any]:
    if array.ndim != 3 or array.dtype not in (np.uint8, np.float32):
        raise DataError(
            f"an image is {_named(array)}; give PIL images, uint8 arrays of height x width (x channels), "
            "or tensors of channels x height x width, uint8 or float32."
        )
    if image_size is None or array.shape[1:] == (image_size, image_size):
        return array
    planes = [
        np.asarray(Image.fromarray(plane).resize((image_size, image_size), Image.Resampling.BILINEAR))
        for plane in array
    ]
    return np.stack(planes)


def _named(array: NDArray[Any]) -> str:
    return f"{array.dtype} of {'x'.join(map(str, array.shape))}"
