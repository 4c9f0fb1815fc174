"""A contact sheet: some images in colour, and below them as they became grey."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHOWN = 4
_SIDE = 64
_QUALITY = 75


def contact_sheet(pictures: NDArray[np.uint8], grey: NDArray[np.uint8]) -> str:
    """A JPEG in base64, small enough to travel in a record.

    Args:
        pictures: images x height x width x 3.
        grey: what became of them, images x height x width.
    """
    sheet = Image.new("RGB", (len(pictures) * _SIDE, 2 * _SIDE))
    for place, (picture, levels) in enumerate(zip(pictures, grey, strict=True)):
        for row, image in enumerate((Image.fromarray(picture), Image.fromarray(levels))):
            sheet.paste(image.convert("RGB").resize((_SIDE, _SIDE)), (place * _SIDE, row * _SIDE))
    written = io.BytesIO()
    sheet.save(written, format="JPEG", quality=_QUALITY)
    return base64.b64encode(written.getvalue()).decode()
