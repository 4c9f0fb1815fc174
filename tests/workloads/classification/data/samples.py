"""Small data sets on the disk, for the tests of data, of decoded images and of identity."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image

RANDOM = np.random.default_rng(0)

READ_ARRAYS = """
import numpy as np
def data(split, data_dir):
    arrays = np.load(f'{data_dir}/{split}.npz')
    return list(zip(arrays['x'], arrays['y'].tolist()))
"""
"""A module with a data set that reads what `write_arrays` writes."""


def write_folder(root: Path, classes: tuple[str, ...] = ("cat", "dog"), each: int = 3, size: int = 8) -> None:
    for split in ("train", "test"):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for number in range(each):
                pixels = RANDOM.integers(0, 256, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number:04}.jpg")


def idx(values: np.ndarray) -> bytes:
    """The idx format of MNIST."""
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return head + values.astype(np.uint8).tobytes()


def write_mnist(raw: Path) -> None:
    raw.mkdir(parents=True)
    for half, count in (("train", 5), ("t10k", 3)):
        images, labels = RANDOM.integers(0, 256, (count, 28, 28)), RANDOM.integers(0, 10, count)
        for kind, values in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            (raw / f"{half}-{kind}").write_bytes(idx(values))
            (raw / f"{half}-{kind}.gz").write_bytes(gzip.compress(idx(values)))


def write_arrays(folder: Path, *, other_label: bool = False) -> Path:
    """1,000 training and 100 test images; one label, or none, differs from those of another call."""
    random = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for split, count in (("train", 1000), ("test", 100)):
        images, labels = random.integers(0, 256, (count, 4, 4), dtype=np.uint8), random.integers(0, 4, count)
        labels[1] = (labels[1] + other_label) % 4
        np.savez(folder / f"{split}.npz", x=images, y=labels)
    return folder
