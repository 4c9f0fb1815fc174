"""Images as arrays, and the cache of them: written once on each machine, then mapped into memory by every rank.

<cache>/decoded/<data set>-<key>/train_images.npy   samples x channels x height x width, uint8 (float32 possible
                                                    for user-defined data sets)
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
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import joblib
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from PIL import Image

from dmls_ray.util.errors import DataError
from dmls_ray.util.importing import is_reference
from dmls_ray.util.paths import cache_root
from dmls_ray.util.shared_lock import lock_with_notice
from dmls_ray.util.source_digest import source_digests
from dmls_ray.util.text import first_line
from dmls_ray.workloads.classification.data.sources import cached_source
from dmls_ray.workloads.classification.datasets import Samples, Source
from dmls_ray.workloads.image_files import UNREADABLE

_LAYOUT = 2
_CHUNK = 256


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


def peek_dataset(name: str, data_dir: str | None, image_size: int | None) -> tuple[tuple[int, int, int], int, int]:
    """Open a data set and read one sample of each half, without decoding the rest.

    Returns:
        The shape of its images (channels, height, width), its classes, and its training samples.

    Raises:
        DataError: the data are missing or unreadable.
    """
    source = cached_source(name, data_dir)
    shapes = [_first_image(name, half, image_size).shape for half in source.halves]
    channels, height, width = shapes[0]
    return (channels, height, width), source.classes, len(source.halves[0])


@functools.cache
def load_decoded(name: str, data_dir: str | None, image_size: int | None) -> Decoded:
    """The data set as arrays, mapped from the cache. Fills the cache if needed.

    Raises:
        DataError: the data are missing or unreadable, or the images differ in shape.
    """
    source = cached_source(name, data_dir)
    folder = _folder(name, data_dir, source, image_size)
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(folder.parent)
            with lock_with_notice(f"{folder}.lock", f"decodes the images of dataset={name}"):
                if not folder.exists():
                    _fill(folder, name, source, image_size)
        except OSError as error:
            raise DataError(
                f"dataset={name}: its images cannot be decoded into {folder.parent} ({error.strerror or error}); free "
                "space there, or name a folder on another disk in DMLS_RAY_CACHE."
            ) from error
    try:
        return _map(folder)
    except (OSError, ValueError, KeyError, TypeError, EOFError, SyntaxError, TokenError) as error:
        raise DataError(
            f"dataset={name}: its decoded images in {folder} cannot be read ({first_line(error)}); remove that folder, "
            "then they are decoded again."
        ) from error


def _map(folder: Path) -> Decoded:
    """Map a folder of decoded images into memory.

    Raises:
        OSError, ValueError, KeyError, TypeError, EOFError, SyntaxError, TokenError: a file is missing or damaged.
    """
    # Copy-on-write: all ranks of the machine share the pages, and PyTorch does not warn about a read-only array.
    # allow_pickle=False: a pickled object could run any code.
    arrays = {
        name: np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
        for name in ("train_images", "train_labels", "test_images", "test_labels")
    }
    classes = json.loads((folder / "meta.json").read_text())["classes"]
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        if images.ndim != 4 or images.dtype not in (np.uint8, np.float32) or len(images) != len(labels):
            raise ValueError(f"{split}_images.npy has other images than expected")
        if labels.ndim != 1 or labels.dtype != np.int64 or not 0 <= labels.min() <= labels.max() < classes:
            raise ValueError(f"{split}_labels.npy has other labels than expected")
    if arrays["train_images"].shape[1:] != arrays["test_images"].shape[1:]:
        raise ValueError("training and test images differ in shape")
    return Decoded(**arrays, classes=classes)


def is_decoded(name: str, data_dir: str | None, image_size: int | None) -> bool:
    """Whether the cache has the decoded data set.

    Raises:
        UnknownNameError, ConfigError, DataError, UserCodeError: as `find_source`.
    """
    return _folder(name, data_dir, cached_source(name, data_dir), image_size).exists()


def _folder(name: str, data_dir: str | None, source: Source, image_size: int | None) -> Path:
    # With data_dir and code, since a user's function may make something else of the same content.
    place = data_dir and str(Path(data_dir).expanduser().resolve())
    code = source_digests([name.partition(":")[0]]) if is_reference(name) else {}
    parts = [_LAYOUT, source.fingerprint, place, code, image_size]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_root() / "decoded" / f"{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:40]}-{key}"


def _first_image(name: str, samples: Samples, image_size: int | None) -> NDArray[Any]:
    try:
        return to_chw(samples[0][0], image_size)
    except UNREADABLE as error:
        raise DataError(f"dataset={name}: the first sample cannot be read: {error}.") from error


def _fill(folder: Path, name: str, source: Source, image_size: int | None) -> None:
    """Decode into a temporary folder and rename it, so that an existing cache folder is complete."""
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True) as made:
        temporary = Path(made)
        first = _first_image(name, source.halves[0], image_size)
        for split, samples in zip(("train", "test"), source.halves, strict=True):
            _decode(temporary, split, samples, first, image_size, source.classes)
        (temporary / "meta.json").write_text(json.dumps({"classes": source.classes, "fingerprint": source.fingerprint}))
        os.replace(temporary, folder)


def _remove_leftovers(parent: Path) -> None:
    """Remove what killed processes have left of their decoding. A process that still decodes holds the lock."""
    for leftover in parent.glob("*.*/"):
        lock = FileLock(f"{leftover.with_suffix('')}.lock")
        with suppress(Timeout), lock.acquire(timeout=0):
            shutil.rmtree(leftover, ignore_errors=True)


def _decode(
    folder: Path, split: str, samples: Samples, first: NDArray[Any], image_size: int | None, classes: int
) -> None:
    count = len(samples)
    shape = (count, *first.shape)
    images = _new_array(folder / f"{split}_images.npy", first.dtype, shape)
    labels = _new_array(folder / f"{split}_labels.npy", np.dtype(np.int64), (count,))

    def fill(indices: Sequence[int]) -> None:
        for index in indices:
            try:
                image, label = samples[index]
                array = to_chw(image, image_size, channels=first.shape[0])
            except UNREADABLE as error:
                raise DataError(f"{split} image {index} cannot be read: {error}.") from error
            if array.shape != first.shape or array.dtype != first.dtype:
                raise DataError(
                    f"{split} image {index} is {_description(array)} and the first one is {_description(first)}; "
                    "set image_size to bring all to one size."
                )
            if not 0 <= int(label) < classes:
                raise DataError(f"{split} label {index} is {int(label)}; labels go from 0 to {classes - 1}.")
            images[index], labels[index] = array, int(label)

    # PIL releases the interpreter's lock while it decodes, so threads are enough.
    with ThreadPoolExecutor(joblib.cpu_count()) as pool:
        list(pool.map(fill, [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]))
    images.flush()
    labels.flush()


def _new_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Map a new file into memory.

    Raises:
        OSError: the disk has no space for it. Without the reservation, the first write into the mapping would end the
            process with SIGBUS.
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if sys.platform != "darwin":  # macOS has no posix_fallocate
        with open(path, "rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def to_chw(image: Any, image_size: int | None, channels: int | None = None) -> NDArray[Any]:
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
    if not hasattr(image, "permute"):  # a tensor is channels first already
        array = array[:, :, None] if array.ndim == 2 else array
        array = np.ascontiguousarray(array.transpose(2, 0, 1)) if array.ndim == 3 else array
    if array.ndim != 3 or array.dtype not in (np.uint8, np.float32):
        raise DataError(
            f"an image is {_description(array)}; give PIL images, uint8 arrays of height x width (x channels), "
            "or tensors of channels x height x width, uint8 or float32."
        )
    if image_size is None or array.shape[1:] == (image_size, image_size):
        return array
    planes = [
        np.asarray(Image.fromarray(plane).resize((image_size, image_size), Image.Resampling.BILINEAR))
        for plane in array
    ]
    return np.stack(planes)


def _description(array: NDArray[Any]) -> str:
    """Type and shape of an array, for an error."""
    return f"{array.dtype} of {'x'.join(map(str, array.shape))}"
