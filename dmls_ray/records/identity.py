"""`Identity`: what a run executes and trains on, beyond the names in its configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from dmls_ray.records.model import RunRecord
from dmls_ray.util.source_digest import text_digest

OF_FUNCTION = "()"
"""End of the name of a function in `code` that has no module, and that the driver sends to the ranks."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Digests of the user's code that a run executes, and fingerprints of its data. Work of another identity is not
    done.
    """

    modules: tuple[str, ...] = ()
    """The user's modules that the configuration names; the files of `code` follow from them."""
    code: Mapping[str, str] = field(default_factory=dict)
    """As `RunRecord.code`."""
    data: Mapping[str, str] = field(default_factory=dict)
    """As `RunRecord.data`, of the data sets that are known before the run."""

    @property
    def has_user_code(self) -> bool:
        """Whether the run executes code of the user, so that it has a process of its own."""
        return bool(self.code)

    @property
    def digest(self) -> str:
        """One digest of code and data; empty if there are none."""
        parts = [sorted(self.code.items()), sorted(self.data.items())]
        return text_digest(json.dumps(parts)) if any(parts) else ""

    def folder_of(self, run_id: str) -> str:
        """The folder of the files of a run, relative to the results folder.

        It has the version in its name, so that the files of two versions never mix.
        """
        return f"runs/{run_id}-{digest[:8]}" if (digest := self.digest) else f"runs/{run_id}"

    def is_of(self, record: RunRecord) -> bool:
        """Whether a record is of a run with this code and these data."""
        return record.code == self.code and all(record.data.get(name) == value for name, value in self.data.items())
