"""Hashes that name configurations: equal values have equal hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(values: Mapping[str, Any]) -> str:
    """12 hex digits of plain values; their order does not matter."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def digest_of_changes(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """12 hex digits of the values that differ from their defaults.

    A value at its default is left out, so a configuration keeps its hash when a field is added to its class.
    """
    return digest({name: value for name, value in values.items() if name not in defaults or value != defaults[name]})
