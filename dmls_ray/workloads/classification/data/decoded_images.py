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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dmls_ray.records.provenance import version_of
from dmls_ray.util.cores import usable_cores
from dmls_ray.util.errors import DataError
from dmls_ray.util.files import TemporaryFolder, cache_root
from dmls_ray.util.importing import missing_extra
from dmls_ray.util.text import first_line
from dmls_ray.workloads.classification.data.sources import cached_source, read_sample
from dmls_ray.workloads.classification.datasets import Samples, Source, Split
from dmls_ray.workloads.image_files import UNREADABLE, to_8_bits
from dmls_ray.workloads.user_function.sent import code_of

_CACHE_VERSION = 4
_CHUNK = 256
_READER = "pillow"
"""The package that reads images; another version may decode some otherwise."""

_GREY_MODES = ("1", "L", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")

_MOST_CHANNELS = 4
"""Channels of an image that an array can hold; a tensor may have more."""


@dataclass(frozen=True)
class Decoded:
    """All samples of a data set as arrays."""

    train_images: NDArray[Any]
    train_labels: NDArray[np.int64]
    test_images: NDArray[Any]
    test_labels: NDArray[np.int64]
    class_names: list[str]
    """In the order of the labels."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train_images.shape[1:]
        return int(channels), int(height), int(width)


@dataclass(frozen=True)
class DecodedSplit:
    """A half of a data set, decoded as it is read: [index] -> (image of channels x height x width, label)."""

    name: str
    """The data set, for errors."""
    split: Split
    samples: Samples
    classes: int
    image_size: int | None
    """Pixels a side, or None."""
    first: NDArray[Any]
    """The first training image, decoded, which all others are like."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.first.shape
        return channels, height, width

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[NDArray[Any], int]:
        """A sample.

        Raises:
            DataError, UserCodeError: as `read_sample`; or the image cannot be used, or the label is too large.
        """
        image, label = read_sample(self.name, self.split, self.samples, index)
        where = f"dataset={self.name}: {self.split}"
        array = _array(image, f"{where} image {index}", self.image_size, len(self.first))
        if array.shape != self.first.shape or array.dtype != self.first.dtype:
            raise DataError(
                f"{where} image {index} is {description(array)} and the first one is {description(self.first)}; set "
                "image_size to bring all to one size."
            )
        if label >= self.classes:
            raise DataError(f"{where} label {index} is {label}; labels go from 0 to {self.classes - 1}.")
        return array, label


def _array(image: Any, which: str, image_size: int | None, channels: int | None = None) -> NDArray[Any]:
    try:
        return to_chw(image, image_size, channels)
    except UNREADABLE as error:
        raise DataError(f"{which} cannot be read ({first_line(error)}).") from error


def decoded_splits(name: str, source: Source, image_size: int | None) -> tuple[DecodedSplit, DecodedSplit]:
    """The training and the test samples of a data set, decoded as they are read.

    Raises:
        DataError, UserCodeError: the first training sample cannot be used.
    """
    train, test = source.halves
    image, _ = read_sample(name, "train", train, 0)
    first = _array(image, f"dataset={name}: train image 0", image_size)
    return (
        DecodedSplit(name, "train", train, source.classes, image_size, first),
        DecodedSplit(name, "test", test, source.classes, image_size, first),
    )


def peek_dataset(name: str, data_dir: str | None, image_size: int | None) -> tuple[tuple[int, int, int], int, int]:
    """Open a data set and read one sample of each half, without decoding the rest.

    Returns:
        The shape of its images (channels, height, width), its classes, and its training samples.

    Raises:
        DataError, UserCodeError: the data are missing or unreadable.
    """
    source = cached_source(name, data_dir)
    train, test = decoded_splits(name, source, image_size)
    _ = train[0], test[0]
    return train.shape, source.classes, len(train)


@functools.cache
def load_decoded(name: str, data_dir: str | None, image_size: int | None) -> Decoded:
    """The data set as arrays, mapped from the cache. Fills the cache if needed.

    Raises:
        DataError, UserCodeError: the data are missing or unreadable, or the images differ in shape.
    """
    source = cached_source(name, data_dir)
    folder = _folder(name, data_dir, source, image_size)
    try:
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                _fill(folder, name, source, image_size)
    except OSError as error:
        raise DataError(
            f"dataset={name}: its images cannot be decoded into {folder.parent} ({error}); free space there, or name a "
            "folder on another disk in DMLS_RAY_CACHE."
        ) from error
    try:
        # Copy-on-write: all ranks of the machine share the pages, and PyTorch does not warn about a read-only array.
        # allow_pickle=False: a pickled object could run any code.
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
            for name in ("train_images", "train_labels", "test_images", "test_labels")
        }
        about = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        return Decoded(**arrays, class_names=about["classes"])
    except Exception as error:
        raise DataError(
            f"dataset={name}: its decoded images in {folder} cannot be read ({first_line(error)}); remove that folder, "
            "then they are decoded again."
        ) from error


def is_decoded(name: str, data_dir: str | None, image_size: int | None) -> bool:
    """Whether the cache has the decoded data set.

    Raises:
        UnknownNameError, ConfigError, DataError, UserCodeError: as `find_source`.
    """
    return _folder(name, data_dir, cached_source(name, data_dir), image_size).exists()


def _folder(name: str, data_dir: str | None, source: Source, image_size: int | None) -> Path:
    # With data_dir and code, since a user's function may make something else of the same content.
    place = data_dir and str(Path(data_dir).expanduser().resolve())
    parts = [_CACHE_VERSION, source.fingerprint, place, code_of(name), image_size, version_of(_READER)]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_root() / "decoded" / f"{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:40]}-{key}"


def _fill(folder: Path, name: str, source: Source, image_size: int | None) -> None:
    """Decode into a temporary folder and rename it, so that an existing cache folder is complete."""
    if folder.exists():  # by another process, while this one waited for the lock
        return
    with TemporaryFolder("decoding", folder.parent) as made:
        arrays = made / "arrays"
        arrays.mkdir()
        for half in decoded_splits(name, source, image_size):
            _decode(arrays, half)
        about = json.dumps({"classes": source.class_names, "fingerprint": source.fingerprint})
        (arrays / "meta.json").write_text(about, encoding="utf-8")
        os.replace(arrays, folder)


def _decode(folder: Path, samples: DecodedSplit) -> None:
    count = len(samples)
    images = _new_array(folder / f"{samples.split}_images.npy", samples.first.dtype, (count, *samples.shape))
    labels = _new_array(folder / f"{samples.split}_labels.npy", np.dtype(np.int64), (count,))

    def fill(indices: Sequence[int]) -> None:
        for index in indices:
            images[index], labels[index] = samples[index]

    # PIL releases the interpreter's lock while it decodes, so threads are enough.
    with ThreadPoolExecutor(usable_cores()) as pool:
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
    if hasattr(os, "posix_fallocate"):  # macOS has none
        with open(path, "rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def to_chw(image: Any, image_size: int | None, channels: int | None = None) -> NDArray[Any]:
    """An image as channels x height x width, uint8 (float32 stays float32), resized if asked.

    Args:
        image: a PIL image, a height x width (x channels) array, or a channels x height x width tensor.
        image_size: pixels a side, or None.
        channels: 1 or 3 to bring a PIL image to grey or to colour.

    Raises:
        ValueError: it is no such image.
        OSError, SyntaxError, EOFError, struct.error: PIL cannot read its file.
    """
    if hasattr(image, "getbands"):  # an image of PIL
        is_grey = channels == 1 or (channels is None and image.mode in _GREY_MODES)
        image = to_8_bits(image, "L" if is_grey else "RGB")
    array = _channels_first(image)
    if image_size is None or array.shape[1:] == (image_size, image_size):
        return array
    if reason := missing_extra("PIL", "vision", f"image_size={image_size}"):
        raise DataError(reason)
    from PIL import Image

    planes = [Image.fromarray(plane).resize((image_size, image_size), Image.Resampling.BILINEAR) for plane in array]
    return np.stack([np.asarray(plane) for plane in planes])


def _channels_first(image: Any) -> NDArray[Any]:
    array = np.asarray(image)
    is_tensor = hasattr(image, "permute")
    if array.ndim == 2 and not is_tensor:
        array = array[:, :, None]
    if array.ndim != 3 or array.dtype not in (np.uint8, np.float32) or not array.size:
        raise ValueError(
            f"{description(array)} is no image; give PIL images, arrays of height x width (x channels), or tensors of "
            "channels x height x width: uint8 from 0 to 255, or float32 as the model takes them"
        )
    if array.dtype == np.float32 and not np.isfinite(array).all():
        raise ValueError("values are not finite")
    wrong = ValueError(f"{description(array)}: channels come first in a tensor, and last in an array (4 at most)")
    if is_tensor:
        if array.shape[2] <= _MOST_CHANNELS < min(array.shape[:2]):
            raise wrong
        return array
    if array.shape[2] > _MOST_CHANNELS:
        raise wrong
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def description(array: NDArray[Any]) -> str:
    """Type and shape of an array, for an error."""
    return f"{array.dtype} of {'x'.join(map(str, array.shape))}"
