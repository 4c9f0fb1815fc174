"""Image files and PIL images as pictures of 8 bits a channel, for every workload that reads images."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from dmls_ray.util.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Ends of the names of image files, in lower case."""

UNREADABLE = (OSError, SyntaxError, EOFError, ValueError, struct.error)
"""Exceptions of PIL for a file that is not an image or is broken."""

MOST_EXAMINED = 64
"""Images of a data set whose levels are examined at most, before a sweep starts."""

_BITS_PER_SAMPLE = 258
"""Tag of a TIFF file."""

_SCALED_TO_16_BITS = ("PNG", "PPM")
"""Formats whose grey levels PIL reads into 32 bits, and which have 16."""


def is_image_name(path: str | Path) -> bool:
    """Whether a name is that of an image file, and of none that is hidden."""
    path = Path(path)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def read_rgb(path: str | Path) -> Image.Image:
    """The picture of a file in RGB, upright as its EXIF data say; of several frames, the first.

    Raises:
        DataError: the file cannot be read, or its levels have no defined range.
    """
    return _read(path, lambda image: _upright(to_8_bits(image, "RGB")))


def highest_level_in(path: str | Path) -> tuple[int, int]:
    """`highest_level` of the image in a file.

    Raises:
        DataError: as by `read_rgb`.
    """
    return _read(path, highest_level)


def highest_level(image: Image.Image) -> tuple[int, int]:
    """The highest level of an image, and the end of the range that is scaled to 0 to 255: (4095, 65535).

    Raises:
        ValueError: its levels have no defined range.
    """
    import numpy as np

    if _is_deep(image):
        return int(np.asarray(image).max()), 2 ** _bits(image) - 1
    return int(np.asarray(to_8_bits(image, "RGB")).max()), 255


def notes_on_range(name: str, levels: Iterable[tuple[int, int]]) -> list[str]:
    """A line for each range of which the images of a data set use less than half, as those of 12 bits in 16 do.

    Args:
        name: the data set.
        levels: `highest_level` of some training images.
    """
    highest: dict[int, int] = {}
    for level, end in levels:
        highest[end] = max(level, highest.get(end, 0))
    # Images that are all black have no level to stretch.
    return [
        f"dataset={name}: the highest level found in its training images is {level} of {end}, so they are dark: 0 to "
        f"{end} is scaled to 0 to 255. If they have fewer bits, stretch their levels to {end}."
        for end, level in highest.items()
        if 0 < level < end / 2
    ]


def to_8_bits(image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """An image in grey or in colour, its levels scaled from their range to 0 to 255; without its transparency.

    Raises:
        ValueError: its levels have no defined range.
    """
    if _is_deep(image):
        image = _scaled(image)
    if "transparency" in image.info:
        # From a palette of such colours, PIL warns about a direct conversion.
        image = image.convert("RGBA")
    return image.convert(mode)


def _read(path: str | Path, use: Callable[[Image.Image], T]) -> T:
    """What `use` returns for the open image of a file.

    Raises:
        DataError: as by `read_rgb`.
    """
    from PIL import Image

    try:
        if not Path(path).is_file():
            raise OSError("no regular file")  # the reader of a pipe would wait for its writer
        with Image.open(path) as image:
            return use(image)
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"{path} cannot be read ({reason}); repair or remove it.") from error


def _is_deep(image: Image.Image) -> bool:
    """Whether the levels of an image have more than 8 bits."""
    return image.mode == "F" or image.mode.startswith("I")


def _bits(image: Image.Image) -> int:
    """Bits of the range of a deep image.

    Raises:
        ValueError: its levels have no defined range.
    """
    if image.mode.startswith("I;16"):
        return int(getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))[0])
    if image.mode == "I" and image.format in _SCALED_TO_16_BITS:
        return 16
    raise ValueError(f"the levels of PIL's mode {image.mode} have no defined range; save it with 8 or 16 bits")


def _scaled(image: Image.Image) -> Image.Image:
    import numpy as np
    from PIL import Image

    levels = np.asarray(image) * (255 / (2 ** _bits(image) - 1))
    scaled = Image.fromarray(np.rint(levels).astype(np.uint8))
    scaled.info = image.info
    return scaled


def _upright(image: Image.Image) -> Image.Image:
    """A camera turned upright stores the picture lying, and says so in its EXIF data."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except UNREADABLE:  # the EXIF data are broken, and the picture is not
        return image
