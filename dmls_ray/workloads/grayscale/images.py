"""The set of images that all implementations turn grey, and what they must make of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dmls_ray.util.errors import DataError
from dmls_ray.workloads.grayscale.config import files_in
from dmls_ray.workloads.grayscale.implementations import BLUE, GREEN, RED
from dmls_ray.workloads.image_files import UNREADABLE

_AT_ONCE = 2**24
"""Pixels of which the float64 reference is worked out at once."""


@dataclass(frozen=True)
class Images:
    """A set of images where they are turned grey, and room for the result, allocated once.

    Raises:
        ValueError: they are of a shape, type, device or stride that no implementation takes.
    """

    pixels: torch.Tensor
    """uint8, contiguous: images x height x width x 3 (interleaved), or images x 3 x height x width (planar)."""
    grey: torch.Tensor
    """uint8, contiguous, on the same device: images x height x width."""
    planar: bool = False

    def __post_init__(self) -> None:
        for name, tensor, axes in (("pixels", self.pixels, 4), ("grey", self.grey, 3)):
            if tensor.dtype != torch.uint8:
                raise ValueError(f"{name} are {str(tensor.dtype).removeprefix('torch.')}; give uint8, levels 0 to 255.")
            if tensor.dim() != axes:
                raise ValueError(f"{name} have {tensor.dim()} dimensions; give {axes}, the first of them the images.")
            if not tensor.is_contiguous():
                raise ValueError(f"{name} have the strides {tensor.stride()}; give a contiguous tensor.")
        channels = self.pixels.shape[1 if self.planar else 3]
        if channels != 3:
            layout = "planar" if self.planar else "interleaved"
            raise ValueError(f"pixels have {channels} channels in {layout} layout; give 3: red, green and blue.")
        if self.grey.shape != self._shape:
            raise ValueError(f"grey has the shape {tuple(self.grey.shape)}, and the images {tuple(self._shape)}.")
        if self.grey.device != self.pixels.device:
            raise ValueError(f"grey is on {self.grey.device} and pixels on {self.pixels.device}; give one device.")

    @classmethod
    def of(cls, pictures: NDArray[np.uint8], *, planar: bool, device: torch.device) -> Images:
        """A set of pictures, images x height x width x 3, on a device."""
        pixels = torch.from_numpy(pictures)
        pixels = (pixels.permute(0, 3, 1, 2) if planar else pixels).contiguous()
        count, height, width, _ = pictures.shape
        return cls(pixels.to(device), torch.zeros(count, height, width, dtype=torch.uint8, device=device), planar)

    def first(self, count: int) -> Images:
        """The first images alone, which share their memory with these."""
        return Images(self.pixels[:count], self.grey[:count], self.planar)

    def channels(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Red, green and blue, each images x height x width."""
        red, green, blue = self.pixels.unbind(1 if self.planar else 3)
        return red, green, blue

    @property
    def bytes_moved(self) -> int:
        """What a pass cannot do without: each pixel read once, and its grey level written once."""
        return self.pixels.numel() + self.grey.numel()

    @property
    def _shape(self) -> torch.Size:
        count, *rest = self.pixels.shape
        return torch.Size((count, *(rest[1:] if self.planar else rest[:2])))


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
    source = _cuts(size) if folder is None else _middles(Path(folder), size)
    pictures = np.empty((count, size, size, 3), dtype=np.uint8)
    have = 0
    for have, picture in enumerate(itertools.islice(source, count), start=1):
        pictures[have - 1] = picture
    for place in range(have, count):
        pictures[place] = pictures[place % have]
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


def _middles(folder: Path, size: int) -> Iterator[NDArray[np.uint8]]:
    for path in files_in(folder):
        try:
            with Image.open(path) as image:
                yield np.asarray(ImageOps.fit(_upright(image).convert("RGB"), (size, size)))
        except UNREADABLE as error:
            raise DataError(f"pictures={folder}: {path.name} cannot be read ({error}); repair or remove it.") from error


def _upright(image: Image.Image) -> Image.Image:
    """A camera turned upright stores the picture lying, and says so in its EXIF data."""
    try:
        return ImageOps.exif_transpose(image)
    except UNREADABLE:  # the EXIF data is broken; a broken picture fails when it is converted
        return image


def reference(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The grey levels of pictures, images x height x width x 3, in float64 and rounded to the nearest."""
    flat = pictures.reshape(-1, 3)
    levels = np.empty(len(flat), dtype=np.uint8)
    for start in range(0, len(flat), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        levels[part] = np.rint(flat[part].astype(np.float64) @ np.array([RED, GREEN, BLUE]))
    return levels.reshape(pictures.shape[:-1])


def levels_apart(levels: NDArray[np.uint8], right: NDArray[np.uint8]) -> int:
    """How many grey levels two sets of pictures are apart where they are most."""
    return int(max(np.max(levels - np.minimum(levels, right)), np.max(right - np.minimum(levels, right))))
