"""`--batch-size max`: the largest value that fits in place of the word, and the smallest that is as fast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dmls_ray.analysis.findings.knee import CLOSE, Knee, knees_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.words import amount_text
from dmls_ray.cli.request import Request
from dmls_ray.cli.sweep_flags import flag_of
from dmls_ray.config.axes import Axes, Largest
from dmls_ray.config.options import Until
from dmls_ray.execution.largest import LargestFit
from dmls_ray.execution.planning import plan_sweep
from dmls_ray.execution.prober import Prober
from dmls_ray.util.errors import ConfigError

_MOST_VALUES = 5
"""Values that are compared where none but the largest was asked for: each is half of the one before."""


def field_of_largest(axes: Axes) -> str:
    """The field whose largest value is asked for; empty where none is.

    Raises:
        ConfigError: those of several are.
    """
    names = []
    for name, given in axes.items():
        if isinstance(given, tuple) and any(isinstance(value, Largest) for value in given):
            names.append(name)
    if len(names) > 1:
        flags = " and ".join(f"{flag_of(name)} max" for name in names)
        raise ConfigError(f"{flags} depend on each other; give max to one of them.")
    return names[0] if names else ""


def with_largest(request: Request, name: str, prober: Prober) -> Request:
    """The request with the largest value that fits, found by short runs.

    Args:
        request: what was asked.
        name: the field whose largest value it asks for.
        prober: makes the short runs.

    Raises:
        ConfigError: nothing fits, or nothing may be run.
    """
    if request.dry_run:
        raise ConfigError(f"{flag_of(name)} max is found by short runs, which --dry-run does not start; give values.")
    given = request.axes[name]
    assert isinstance(given, tuple)
    default = request.workload.schema().specs[name].default
    numbers = [value for value in given if isinstance(value, int)]
    if not numbers and isinstance(default, int) and default > 0:
        numbers = [default]
    smallest = min(numbers, default=1)
    # What cannot be run with the largest value, either, is refused before runs look for it.
    plan_sweep({**request.axes, name: (smallest,)}, request.options, request.workload, variants=request.variants)
    largest = LargestFit(prober, request.axes, name).find(smallest)
    values = []
    for value in given:
        values.append(max(1, int(value.share * largest)) if isinstance(value, Largest) else value)
    if len(values) == 1:
        values = sorted({max(1, values[0] >> halvings) for halvings in range(_MOST_VALUES)})
    return replace(request, axes={**request.axes, name: tuple(values)}, options=prober.options)


def describe_knees(table: Table, name: str, until: Until) -> Iterator[str]:
    """The smallest value that is as fast as the fastest, line by line for trials that differ in it alone."""
    for knee in knees_of(table.rows, name, table.fixed_batch_field, until):
        yield _describe(knee, name)


def _describe(knee: Knee, name: str) -> str:
    smallest, best = (trial.records[0].config[name] for trial in (knee.smallest, knee.best))
    line = f"Smallest {name} within {CLOSE:.0%} of the best rate: {smallest:,}"
    if knee.effect is not None:
        line += f" ({amount_text(knee.effect)} as fast as {best:,})"
    if knee.undecided:
        open_values = ", ".join(f"{trial.records[0].config[name]:,}" for trial in knee.undecided)
        line += f"; undecided: {open_values}"
    return f"{line}."
