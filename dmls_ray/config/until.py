"""`Until`: until when a sweep repeats its trials, where it decides so itself (`--repeats auto`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Until:
    """Until when trials are repeated. `Options` has each of these fields as a flag, with the same default."""

    within: float = 0.05
    """Half-width of an interval that is narrow enough: 0.05 for 5% of a ratio, or for 0.05 of an accuracy."""
    equivalent: float = 0.02
    """Difference that counts as none: 0.02 for 2% of a ratio, or for 0.02 of an accuracy."""
    max_repeats: int = 30
    budget: float | None = 60.0
    """Seconds for repeats beyond the third; None: unlimited."""
    race: bool = False
    """Whether a trial that is beaten takes no part in further blocks."""
    aim: str | None = None
    """What trials race for: an objective of `dmls-ray advise`."""

    def describe(self) -> dict[str, Any]:
        """As sweep.json records it."""
        return asdict(self)

    @classmethod
    def of(cls, session: Mapping[str, Any]) -> Self | None:
        """Of one call of a sweep, as sweep.json records it; None where the number of repeats was given."""
        given = session.get("until")
        names = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in names}) if given else None
