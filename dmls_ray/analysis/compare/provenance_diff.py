"""What differs between the places, times and versions that two sweeps were measured in."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

_SHOWN = {"gpus": "GPUs", "memory_mib": "memory MiB", "cpu": "CPU", "os": "system"}
_BUSIER = 0.25
"""Difference of load averages, by core, that is worth a line."""


def differences(a: Results, b: Results) -> list[str]:
    """A line for each kind of thing that differs, A's against B's: machine, versions, source, and how runs were made.

    Args:
        a: one sweep.
        b: the other.
    """
    sides = _begun(a), _begun(b)
    sentences = []
    for kind, field in (("machines", "machine"), ("versions", "versions")):
        names = dict.fromkeys(name for side in sides for item in _distinct(side, field) for name in item)
        if lines := [text for name in names if (text := _differs(sides, _reader(field, name), _SHOWN.get(name, name)))]:
            sentences.append(f"The {kind} differ: {'; '.join(lines)}.")
    if text := _differs(sides, lambda record: _commit(record.git), "commit"):
        sentences.append(f"The source differs: {text}.")
    made = [("device", lambda record: record.device), ("backend", lambda record: record.backend or None),
            ("isolation", lambda record: record.isolation), ("mode", lambda record: record.mode),
            ("oversubscribed", lambda record: record.oversubscribed),
            ("compile_cache", lambda record: record.compile_cache or None)]  # fmt: skip
    if lines := [text for name, read in made if (text := _differs(sides, read, name))]:
        sentences.append(f"The runs were made differently: {'; '.join(lines)}.")
    return sentences


def apart_in_time(a: Results, b: Results) -> list[str]:
    """When each was measured, and what that means for a comparison of times."""
    sides = _begun(a), _begun(b)
    whens = []
    for side in sides:
        times = [record.started_at for record in side if record.started_at]
        whens.append(f"{min(times)[:16]} to {max(times)[:16]}" if times else "at an unknown time")
    return [
        f"A was measured {whens[0]}, B {whens[1]} (UTC). What the machine did otherwise in the meantime looks like a "
        "difference between them, and no interval here knows of it: where that matters, measure each in 3 sessions or "
        "more, in turn.",
        *_load(sides),
    ]


def _begun(results: Results) -> list[RunRecord]:
    """Runs that were made; a skipped run has no machine."""
    return [record for record in results.records if record.outcome is not Outcome.SKIPPED]


def _distinct(records: Iterable[RunRecord], field: str) -> list[dict[str, Any]]:
    """Each object once: many runs share one."""
    return list({id(item): item for item in (getattr(record, field) for record in records)}.values())


def _reader(field: str, name: str) -> Callable[[RunRecord], Any]:
    return lambda record: getattr(record, field).get(name)


def _differs(sides: Sequence[Sequence[RunRecord]], read: Callable[[RunRecord], Any], name: str) -> str:
    """`torch 2.9 in A, 2.10 in B`; empty where both have the same values."""
    values_a, values_b = ({_text(value) for record in side if (value := read(record)) is not None} for side in sides)
    if values_a == values_b:
        return ""
    return (
        f"{name} {' and '.join(sorted(values_a)) or 'unknown'} in A, {' and '.join(sorted(values_b)) or 'unknown'} in B"
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _commit(git: dict[str, Any]) -> str | None:
    if not git.get("commit"):
        return None
    return f"{git['commit'][:12]}{' with changes' if git.get('dirty') else ''}"


def _load(sides: Sequence[Sequence[RunRecord]]) -> list[str]:
    """Whether other work may have run during one of them."""
    loads = [[record.load_average for record in side if record.load_average is not None] for side in sides]
    cores = [record.machine.get("cores") or 1 for side in sides for record in side]
    if not all(loads):
        return []
    load_a, load_b = (statistics.median(values) for values in loads)
    if abs(load_b - load_a) <= _BUSIER * min(cores):
        return []
    return [
        f"The load average at a run's start was {load_a:.1f} in A and {load_b:.1f} in B (medians): other work during "
        "one of them may be the difference."
    ]
