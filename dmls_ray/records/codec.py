"""JSON of records: encoding, and decoding of the objects that many records have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from dmls_ray.records.validation import SHARED_TYPES
from dmls_ray.util.text import utf8_safe


def encode_json(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Compact JSON of a record or of plain values; a number that is not finite becomes null.

    Args:
        value: what to encode.
        default: returns what takes the place of a value that is not plain; None: such a value is a TypeError.
    """

    def base_value(value: Any) -> Any:
        # A subclass of a plain type, as NumPy's float64 is one of float.
        for kind in (float, int, str):
            if isinstance(value, kind):
                return kind(value)
        if default is None:
            raise TypeError(f"{value!r} is of type {type(value).__name__} and not a plain value")
        return default(value)

    encode = msgspec.json.Encoder(enc_hook=base_value, decimal_format="number").encode
    try:
        return encode(value)
    except UnicodeEncodeError:  # a lone surrogate, as in the name of a file: no UTF-8 holds it
        return encode(_with_utf8_texts(msgspec.to_builtins(value, enc_hook=base_value, str_keys=True)))


class SharedObjects:
    """JSON objects decoded and checked once; records with the same JSON share one dict, which nothing changes."""

    def __init__(self) -> None:
        self._decoded: dict[tuple[str, bytes], dict[str, Any]] = {}

    def decode(self, field: str, content: Raw | dict[str, Any]) -> dict[str, Any]:
        """The object of a field of a record.

        Args:
            field: the field, one of `SHARED_TYPES`.
            content: its JSON; or its default, which is returned as it is.

        Raises:
            ValueError: it is invalid.
        """
        if not isinstance(content, Raw):
            return content

        key = (field, bytes(content))
        if key not in self._decoded:
            try:
                values = msgspec.json.decode(content, type=dict[str, Any])
                msgspec.convert(values, SHARED_TYPES[field])
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from error
            self._decoded[key] = values
        return self._decoded[key]


def _with_utf8_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {utf8_safe(key): _with_utf8_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_utf8_texts(item) for item in value]
    return utf8_safe(value) if isinstance(value, str) else value
