"""What pairs of trials are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.trial import describe_configuration
from dmls_ray.config.grid import BASELINE

LABELS: Mapping[str, str] = {
    "values": "{field} {value} vs {base}",
    "one_batch": "{field} {value} vs {base}, one batch",
    "int8": "int8 by {value} vs fp32",
    "change": "{value}",
    "trials": "{trial} vs {base_trial}",
    "trial": "{trial}",
    "curve": "critical batch, by the curve",
    "gradient_noise": "critical batch, by gradient noise",
}
"""Kind of a pair -> its label."""
_COUNTS = {
    "world_size": ("rank", "ranks"),
    "machines": ("machine", "machines"),
    "ranks_per_machine": ("rank/machine", "ranks/machine"),
}
"""Field that counts ranks -> the noun of one and of several."""


def pair_label(pair: Pair) -> str:
    """The names of both trials: `batch_per_rank 64 vs 32`."""
    if pair.kind == "batch":
        return ", ".join(f"{name} {value:.10g}" for name, value in pair.value.items())
    if pair.kind == "change" and pair.base_value:
        return f"{pair.value} vs {pair.base_value}"
    return LABELS[pair.kind].format(
        field=field_noun(pair),
        value=_value_text(pair.value),
        base=base_text(pair),
        trial=describe_configuration(pair.trial.factors),
        base_trial=describe_configuration(pair.base.factors),
    )


def place_text(pair: Pair) -> str:
    """What both trials share, and other pairs of this label do not: `2 ranks`; of means, `mean of 4`."""
    if pair.count > 1:
        return f"mean of {pair.count}"
    if pair.kind == "one_batch":
        return f"{pair.shared['samples_per_step']:,.10g} samples a step"
    if pair.kind == "change" and pair.shared:
        return describe_configuration(pair.shared)
    return ", ".join(_describe_value(name, value) for name, value in pair.shared.items())


def pair_text(pair: Pair) -> str:
    """`batch_per_rank 128 vs 16 (1 rank)`."""
    place = place_text(pair)
    return f"{pair_label(pair)} ({place})" if place else pair_label(pair)


def with_place(pair: Pair) -> str:
    """` with 2 ranks`; empty where the place needs no name."""
    place = place_text(pair)
    return f" with {place}" if place else ""


def field_noun(pair: Pair) -> str:
    """What a sentence calls the field of a pair: `batch_per_rank`, `ranks`, `change`."""
    if pair.kind == "change":
        return "change"
    return _COUNTS[pair.field][1] if pair.field in _COUNTS else pair.field


def base_text(pair: Pair) -> str:
    """What a sentence calls the base of a pair: `32`."""
    if pair.kind == "change":
        return pair.base_value or BASELINE
    return _value_text(pair.base_value)


def _value_text(value: Any) -> str:
    return "unset" if value is None else str(value)


def _describe_value(name: str, value: Any) -> str:
    """A field with its value: `precision bf16`, `1 rank`, `2 ranks/machine`."""
    if name not in _COUNTS:
        return f"{name} {value}"
    one, several = _COUNTS[name]
    return f"{value} {one if value == 1 else several}"
