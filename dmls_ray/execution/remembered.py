"""Ratios that one command has measured on this machine for later ones, in files of the cache."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from filelock import FileLock

from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.util.files import atomic_replace, cache_root


def remembered(name: str) -> dict[str, Interval]:
    """What is kept under a name; empty without it, and where the file cannot be read."""
    try:
        return msgspec.json.decode(_file(name).read_bytes(), type=dict[str, Interval])
    except (OSError, ValueError, RecursionError, msgspec.DecodeError):
        return {}


def remember(name: str, ratios: Mapping[str, Interval]) -> None:
    """Keep ratios under a name, beside those that are there. Where that is impossible, a line says so."""
    file = _file(name)
    new = {key: Interval(ratio.centre, ratio.low, ratio.high) for key, ratio in ratios.items()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"), atomic_replace(file) as aside:
            aside.write_bytes(msgspec.json.encode(remembered(name) | new))
    except OSError as error:
        print(f"{file} cannot be written ({error.strerror}): the next sweep measures this again.", file=sys.stderr)


def _file(name: str) -> Path:
    return cache_root() / f"{name}.json"
