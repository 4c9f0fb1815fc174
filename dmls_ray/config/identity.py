"""Hashes that name configurations, and `Identity`: the user's code that a run executes and the data that it reads.

Equal values have equal hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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


OF_FUNCTION = "()"
"""End of the name of a function in `code` that has no module, and that the driver sends to the ranks."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Digests of the user's code and data. They are a part of the trial's id: edited code makes another trial."""

    modules: tuple[str, ...] = ()
    """The user's modules that the configuration names; the files of `code` follow from them."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Digest of each source file of the user that the run imports, by its path below the folder of imports; of a
    function without a module, by its name and `()`.
    """
    data: Mapping[str, str] = field(default_factory=dict)
    """Fingerprint of each data set of the run, by its name in the configuration."""

    def trial_id(self, config_hash: str) -> str:
        """The id of the trial with this configuration: its hash where there are no code and data."""
        if not self.code and not self.data:
            return config_hash
        return digest({"config": config_hash, "code": dict(self.code), "data": dict(self.data)})


def join_identities(identities: Iterable[Identity]) -> Identity:
    """The code and the data of several runs."""
    modules: set[str] = set()
    code: dict[str, str] = {}
    data: dict[str, str] = {}
    for identity in identities:
        modules.update(identity.modules)
        code.update(identity.code)
        data.update(identity.data)
    return Identity(modules=tuple(sorted(modules)), code=code, data=data)
