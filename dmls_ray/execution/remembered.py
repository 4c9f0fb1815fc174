"""Ratios that one command has measured on this machine for later ones, in files of the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.util.files import atomic_replace, cache_root


def remembered(name: str) -> dict[str, Interval]:
    """What is kept under a name; empty without it, and where the file cannot be read."""
    try:
        return msgspec.json.decode(_file(name).read_bytes(), type=dict[str, Interval])
    except (OSError, msgspec.DecodeError):
        return {}


def remember(name: str, ratios: Mapping[str, Interval]) -> None:
    """Keep ratios under a name, beside those that are there."""
    kept = remembered(name) | {key: Interval(ratio.centre, ratio.low, ratio.high) for key, ratio in ratios.items()}
    _file(name).parent.mkdir(parents=True, exist_ok=True)
    with atomic_replace(_file(name)) as aside:
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))


def _file(name: str) -> Path:
    return cache_root() / f"{name}.json"
