"""Values and scripts as base64 of gzip: a third of their size, and without characters that HTML interprets."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import orjson


def pack(text: str | bytes) -> str:
    """Compress a text; the page decompresses it with `DecompressionStream`."""
    content = text.encode() if isinstance(text, str) else text
    # Without a time stamp, so that equal reports are equal files.
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def to_json(values: Any) -> bytes:
    """Values as compact JSON; values that JSON has no form for become null or text."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(values, default=str, option=options)
    except TypeError:
        # A lone surrogate, as in a file name, or an integer above 64 bits: rare, and slow to search for.
        return orjson.dumps(_clean(values), default=str, option=options)


def utf8_safe(text: str) -> str:
    """Text that UTF-8 can encode; lone surrogates become escapes."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return utf8_safe(value)
    if isinstance(value, dict):
        return {utf8_safe(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value
