"""Hashes that name configurations: equal values have equal hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest_of_changes(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """12 hex digits of the plain values that differ from their defaults; the order of the values does not matter.

    A value at its default is left out, so a configuration keeps its hash when a field is added to its class.
    """
    changes = {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}
    text = json.dumps(changes, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
