"""Safe decoding of the picture of a panel: a JPEG only, and of limited size, since a record may be untrusted."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from PIL import Image

Read = TypeVar("Read")

SIDE = 1024
"""Maximum width and height of a picture in pixels."""
REFUSED = f"This picture is not shown: it is no JPEG of at most {SIDE:,} x {SIDE:,} pixels."


def is_small_jpeg(picture: str) -> bool:
    """Whether a base64 text is a JPEG of limited size, by its header: a browser decodes as many pixels as it states."""
    return _read(picture, lambda image: max(image.size) <= SIDE) or False


def decode_jpeg(picture: str) -> Image.Image | None:
    """Decode a base64 JPEG; None if it is no JPEG or too large, in which case no pixel is decoded."""
    return _read(picture, lambda image: None if max(image.size) > SIDE else image.convert("RGB"))


def _read(picture: str, read: Callable[[Image.Image], Read]) -> Read | None:
    """What `read` returns for the opened JPEG; None if it cannot be opened or read."""
    from PIL import Image

    with warnings.catch_warnings(action="ignore"):  # Pillow warns of large images, which are refused
        try:
            with Image.open(io.BytesIO(base64.b64decode(picture, validate=True)), formats=("JPEG",)) as image:
                return read(image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
