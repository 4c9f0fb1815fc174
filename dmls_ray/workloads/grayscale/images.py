"""The images that all implementations turn grey, the grey levels expected of them, and the contact sheet of both."""

from __future__ import annotations

import base64
import io
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dmls_ray.workloads.grayscale.implementations import BLUE, GREEN, RED
from dmls_ray.workloads.grayscale.workload import files_in
from dmls_ray.workloads.image_files import read_rgb

_AT_ONCE = 2**24
"""Pixels whose float64 reference is computed at once."""
_SHEET_IMAGES = 4
"""Images of a contact sheet."""
_SHEET_SIDE = 64
"""Pixels of each side of an image on a contact sheet."""


class Images:
    """A set of images on the device that turns them grey, with memory for the result, allocated once.

    Args:
        pictures: images x height x width x 3, in uint8.
        planar: whether to store each channel as a plane of its own.
        device: where the images are turned grey.
    """

    def __init__(self, pictures: NDArray[np.uint8], *, planar: bool, device: torch.device) -> None:
        pixels = torch.from_numpy(pictures)
        self.planar = planar
        self.pixels = (pixels.permute(0, 3, 1, 2) if planar else pixels).contiguous().to(device)
        """uint8, contiguous: images x height x width x 3 (interleaved), or images x 3 x height x width (planar)."""
        self.grey = torch.zeros(pictures.shape[:3], dtype=torch.uint8, device=device)
        """uint8, contiguous, on the same device: images x height x width."""

    def channels(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Red, green and blue, each images x height x width."""
        return tuple(self.pixels.unbind(1 if self.planar else 3))  # type: ignore[return-value]

    @property
    def bytes_moved(self) -> int:
        """The least that a pass moves: each pixel is read once, and its grey level written once."""
        return self.pixels.numel() + self.grey.numel()


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

    photographs = [_at_least(Image.fromarray(photograph), size) for photograph in load_sample_images().images]
    places = np.random.default_rng(0)
    for photograph in itertools.cycle(photographs):
        top, left = (int(places.integers(room - size + 1)) for room in photograph.shape[:2])
        yield photograph[top : top + size, left : left + size]


def _at_least(photograph: Image.Image, size: int) -> NDArray[np.uint8]:
    """A photograph, enlarged where one of its sides is shorter."""
    factor = size / min(photograph.size)
    if factor > 1:
        photograph = photograph.resize((math.ceil(photograph.width * factor), math.ceil(photograph.height * factor)))
    return np.asarray(photograph)


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
        for row, image in enumerate(map(Image.fromarray, pair)):
            small = image.convert("RGB").resize((_SHEET_SIDE, _SHEET_SIDE))
            sheet.paste(small, (column * _SHEET_SIDE, row * _SHEET_SIDE))
    file = io.BytesIO()
    sheet.save(file, format="JPEG", quality=75)
    return base64.b64encode(file.getvalue()).decode()
