"""`Until`: until when a sweep repeats its trials, where it decides so itself (`--repeats auto`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from dmls_ray.config.fields import NonNegativeNumber, Share, setting
from dmls_ray.util.quantities import seconds_of, share_of


@dataclass(frozen=True, kw_only=True)
class Until:
    """Until when trials are repeated. These are options of a sweep: `Options` inherits them."""

    within: Annotated[float, Meta(gt=0, lt=1)] = setting(0.05, group="stopping", reads=share_of)
    """Half-width of an interval from which on a comparison needs no further repeat: 5% of a ratio, 0.05 of an
    accuracy."""
    equivalent: Share = setting(0.02, group="stopping", reads=share_of)
    """Two trials whose interval shows that they differ by less are equal, and need no further repeat."""
    max_repeats: Annotated[int, Meta(ge=3)] = setting(30, group="stopping")
    """Most repeats of a trial."""
    budget: NonNegativeNumber | None = setting(60.0, group="stopping", reads=seconds_of)
    """Time for repeats beyond the third, 90s, 20m or 2h, say; no block of repeats starts that would not end in it.
    none: no limit."""
    race: bool = setting(False, group="stopping")
    """Leave a trial out of further repeats once it is beaten for the --aim."""
    aim: Literal["throughput", "accuracy", "time-to-accuracy", "memory"] | None = setting(None, group="stopping")
    """What trials race for: most throughput, highest accuracy, shortest time to --target-accuracy, least memory."""

    def describe(self) -> dict[str, Any]:
        """As sweep.json records it."""
        return asdict(self)

    @classmethod
    def of(cls, session: Mapping[str, Any]) -> Self | None:
        """Of one call of a sweep, as sweep.json records it; None where the number of repeats was given."""
        given = session.get("until")
        return msgspec.convert(given, cls) if given else None
