"""Image files and PIL images as pictures of 8 bits a channel, for every workload that reads images."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dmls_ray.util.digests import files_below
from dmls_ray.util.errors import DataError
from dmls_ray.util.text import first_line

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Ends of the names of image files, in lower case."""

UNREADABLE = (OSError, SyntaxError, EOFError, ValueError, struct.error)
"""Exceptions of PIL for a file that is not an image or is broken."""


def is_image_name(path: str | Path) -> bool:
    """Whether a name is that of an image file, and of none that is hidden."""
    path = Path(path)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def read_rgb(path: str | Path) -> Image.Image:
    """The picture of a file in RGB, upright as its EXIF data say; of several frames, the first.

    Raises:
        DataError: the file cannot be read, or its levels have no defined range.
    """
    from PIL import Image, ImageOps

    try:
        if not Path(path).is_file():
            raise OSError("no regular file")  # the reader of a pipe would wait for its writer
        with Image.open(path) as image:
            picture = to_8_bits(image, "RGB")
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read ({first_line(error)}); repair or remove it.") from error
    try:
        return ImageOps.exif_transpose(picture)
    except UNREADABLE:  # the EXIF data are broken, and the picture is not
        return picture


def to_8_bits(image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """An image in grey or in colour, its levels scaled from their range to 0 to 255; without its transparency.

    Raises:
        ValueError: its levels have no defined range.
    """
    # PIL reads levels of 16 bits of a PGM file into 32 bits.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return _scaled(image).convert(mode)
    if image.mode in ("I", "F"):
        raise ValueError(f"the levels of PIL's mode {image.mode} have no defined range; save it with 8 or 16 bits")
    if "transparency" in image.info:
        # From a palette of such colours, PIL warns about a direct conversion.
        image = image.convert("RGBA")
    return image.convert(mode)


def _scaled(image: Image.Image) -> Image.Image:
    """A grey image of 16 bits with 8 bits; PIL's conversion would clip its levels."""
    import numpy as np
    from PIL import Image

    scaled = Image.fromarray(np.rint(np.asarray(image) / 257).astype(np.uint8))
    scaled.info = image.info
    return scaled


class ImageFolder:
    """The images of a split, sorted by class and path.

    Hidden files and folders are left out. All images below a class's folder are of that class.

    Raises:
        DataError: the folder of a class has no image.
    """

    def __init__(self, root: Path) -> None:
        self.classes = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        self.samples: list[tuple[str, int]] = []
        """Path and label of each image."""
        for label, name in enumerate(self.classes):
            files = files_below(str(root / name))
            images = sorted([file for file in files if is_image_name(file)], key=os.path.split)
            if not images:
                raise DataError(f"{root / name} has no image ({', '.join(SUFFIXES)}); add some, or remove the folder.")
            self.samples += [(path, label) for path in images]
        self.targets = [label for _, label in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.samples[index]
        return read_rgb(path), label
