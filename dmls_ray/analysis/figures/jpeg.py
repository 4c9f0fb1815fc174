"""The picture of a panel, which may come from anybody: decoded as a JPEG alone, and only where it has few pixels."""

from __future__ import annotations

import base64
import io
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

SIDE = 1024
"""Pixels that a picture has at most, in its width and in its height."""
REFUSED = f"This picture is not shown: it is no JPEG of at most {SIDE:,} x {SIDE:,} pixels."


def is_small_jpeg(picture: str) -> bool:
    """Whether it is a JPEG of no more pixels, by its head alone: a browser decodes as many as that says."""
    from PIL import Image

    with warnings.catch_warnings(action="ignore"):
        try:
            with Image.open(io.BytesIO(base64.b64decode(picture, validate=True)), formats=("JPEG",)) as image:
                return max(image.size) <= SIDE
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return False


def decode_jpeg(picture: str) -> Image.Image | None:
    """A JPEG in base64 as an image; None where it is none, or has more pixels, which are not decoded then."""
    from PIL import Image

    with warnings.catch_warnings(action="ignore"):  # of many pixels, which are refused
        try:
            with Image.open(io.BytesIO(base64.b64decode(picture, validate=True)), formats=("JPEG",)) as image:
                return None if max(image.size) > SIDE else image.convert("RGB")
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
