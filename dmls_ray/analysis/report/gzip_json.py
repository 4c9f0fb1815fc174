"""Values and scripts as base64 of gzip: a third of their size, and without characters that HTML interprets."""

from __future__ import annotations

import base64
import gzip
from typing import Any

from dmls_ray.records.codec import encode_json


def pack(text: str | bytes) -> str:
    """Compress a text; the page decompresses it with `DecompressionStream`."""
    content = text.encode() if isinstance(text, str) else text
    # Without a time stamp, so that equal reports are equal files.
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def to_json(values: Any) -> bytes:
    """Values as compact JSON; a number that is not finite becomes null, and what is no plain value becomes text."""
    return encode_json(values, default=_plain_or_text)


def _plain_or_text(value: Any) -> Any:
    # NumPy's numbers and arrays have `tolist`.
    return value.tolist() if hasattr(value, "tolist") else str(value)
