"""JSON of records: encoding, and decoding with the checks that files from untrusted sources need.

Tables, figures and reports use the checked values without further checks of types. The id of a run can be the name of a
folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.options import Until

RunName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\Z")]
"""The name of a folder: no separator, no `..`, no character that a terminal or a page interprets."""

MOST_PICTURE = 64 * 1024
"""Most characters of a picture in base64."""

Picture = Annotated[str, Meta(max_length=MOST_PICTURE, pattern=r"^(/9j/[A-Za-z0-9+/]*={0,2})?\Z")]
"""A JPEG in base64, by its first three bytes, or nothing."""


def check_field_values(specs: Mapping[str, FieldSpec], config: Mapping[str, Any]) -> None:
    """Refuse values of a recorded configuration of another type than their fields have, or out of their bounds.

    Values that a newer version added to the choices of a field pass, and so do fields without a specification.

    Raises:
        ValueError: with the field.
    """
    for name, value in config.items():
        spec = specs.get(name)
        # Published reports do not say what every field was.
        is_unknown = value is None and name != "world_size"
        if spec is None or spec.choices or is_unknown:
            continue
        try:
            spec.convert(value, strict=True)
        except ValueError as error:
            raise ValueError(f"{name} is {value!r}: {error}") from error


class _Machine(msgspec.Struct):
    """The facts of a machine that tables use; others may be there."""

    host: str = ""
    cpu: str = ""
    os: str = ""
    cores: int | None = None
    memory_mib: float | None = None
    gpus: list[str] = []
    gpu_memory_mib: list[float] = []
    other_machines: list[str] = msgspec.field(name="beside", default_factory=list)


class _Checkout(msgspec.Struct):
    """The facts of a git checkout that tables use."""

    commit: str | None = None
    dirty: bool | None = None
    changes: str | None = None


SHARED_TYPES: Mapping[str, Any] = {
    "config": dict[str, Any],
    "code": dict[str, str],
    "data": dict[str, str],
    "machine": _Machine,
    "versions": dict[str, str],
    "git": _Checkout,
}
"""Fields that many records share -> the type of their values. The workload of a configuration checks its values."""


class _Session(msgspec.Struct):
    """One call of a sweep in sweep.json."""

    question: str | None = None
    axis: str | None = None
    name: str | None = None
    command: list[str] = []
    started_at: str | None = None
    trials: list[str] = []
    metric: str | None = None
    minimizes: bool = False
    mode: str | None = None
    axes: dict[str, list[Any]] = {}
    changed: list[str] = []
    repeats: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    until: Until | None = None
    machine: _Machine | None = None
    versions: dict[str, str] | None = None
    git: _Checkout | None = None
    user_git: _Checkout | None = None
    environment: dict[str, str] = {}
    code: dict[str, str] = {}
    data: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.mode == "search" and self.metric is None:
            raise ValueError("a search has no metric")


class _SweepFile(msgspec.Struct):
    schema: int = 0
    sessions: list[_Session] = []


def check_sweep_file(described: Any) -> None:
    """Refuse values that do not have the form of a sweep.json.

    Raises:
        ValueError: with what is wrong.
    """
    msgspec.convert(described, _SweepFile)


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
        plain = msgspec.to_builtins(value, enc_hook=base_value, str_keys=True)
        return encode(json.loads(json.dumps(plain, ensure_ascii=False).encode(errors="replace")))


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
