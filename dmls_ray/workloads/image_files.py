"""Image files and PIL images as pictures of 8 bits a channel, for every workload that reads images."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dmls_ray.util.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Ends of the names of image files, in lower case."""

UNREADABLE = (OSError, SyntaxError, EOFError, ValueError, struct.error)
"""Exceptions of PIL for a file that is not an image or is broken."""

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
    from PIL import Image

    try:
        if not Path(path).is_file():
            raise OSError("no regular file")  # the reader of a pipe would wait for its writer
        with Image.open(path) as image:
            return _upright(to_8_bits(image, "RGB"))
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"{path} cannot be read ({reason}); repair or remove it.") from error


def to_8_bits(image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """An image in grey or in colour, its levels scaled from their range to 0 to 255; without its transparency.

    Raises:
        ValueError: its levels have no defined range.
    """
    if image.mode == "F" or image.mode.startswith("I"):
        image = _scaled(image)
    if "transparency" in image.info:
        # From a palette of such colours, PIL warns about a direct conversion.
        image = image.convert("RGBA")
    return image.convert(mode)


def _scaled(image: Image.Image) -> Image.Image:
    import numpy as np
    from PIL import Image

    if image.mode.startswith("I;16"):
        bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))[0]
    elif image.mode == "I" and image.format in _SCALED_TO_16_BITS:
        bits = 16
    else:
        raise ValueError(f"the levels of PIL's mode {image.mode} have no defined range; save it with 8 or 16 bits")
    levels = np.asarray(image) * (255 / (2**bits - 1))
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
