"""What differs between the places, times and versions that two sweeps were measured in."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import commit_text
from dmls_ray.util.source_digest import AND_IMPORTS

_LABELS = {"gpus": "GPUs", "memory_mib": "memory MiB", "cpu": "CPU", "os": "system"}
_HOW_MADE = ("device", "backend", "isolation", "mode", "oversubscribed")
"""Fields of a record that say how its run was made."""
_CACHE = "compile_cache"
_BUSIER = 0.25
"""Difference of load averages, by core, that is worth a line."""


def differences(a: Results, b: Results) -> list[str]:
    """A line for each kind of difference between two sweeps: machine, versions, source, and how runs were made."""
    sides = _begun(a), _begun(b)
    commits = [[commit_text(record.git) for record in side] for side in sides]
    kinds = {
        "The machines differ": _differing_entries(sides, "machine"),
        "The versions differ": _differing_entries(sides, "versions"),
        "Your code differs": _differing_files(sides, "code"),
        "The data differ": _differing_files(sides, "data"),
        "The source differs": [_difference("commit", commits)],
        "The runs were made differently": [
            *(_difference(name, [[getattr(record, name) for record in side] for side in sides]) for name in _HOW_MADE),
            _difference(_CACHE, [[record.facts.get(_CACHE, "") for record in side] for side in sides]),
        ],
    }
    texts = {head: "; ".join(filter(None, lines)) for head, lines in kinds.items()}
    return [f"{head}: {text}." for head, text in texts.items() if text]


def apart_in_time(a: Results, b: Results) -> list[str]:
    """When each was measured, and whether other work may have run during one of them."""
    sides = _begun(a), _begun(b)
    times = [sorted(record.started_at for record in side if record.started_at) for side in sides]
    whens = [f"{side[0][:16]} to {side[-1][:16]}" if side else "at an unknown time" for side in times]
    texts = [f"A was measured {whens[0]}, B {whens[1]} (UTC)."]
    if all(times) and (times[0][-1] < times[1][0] or times[1][-1] < times[0][0]):
        texts.append("One was measured before the other: what changed in between looks like a difference of the two.")
    return [" ".join(texts), *_load(sides)]


def _begun(results: Results) -> list[RunRecord]:
    """Runs that were made; a skipped run has no machine."""
    return [record for record in results.records if record.outcome is not Outcome.SKIPPED]


def _differing_entries(sides: Sequence[Sequence[RunRecord]], field: str) -> list[str]:
    """The differences in each entry of a field that is a dict."""
    entries = [[getattr(record, field) for record in side] for side in sides]
    names = dict.fromkeys(name for side in entries for entry in side for name in entry)
    return [_difference(_LABELS.get(name, name), [[entry.get(name) for entry in side] for side in entries])
            for name in names]  # fmt: skip


def _differing_files(sides: Sequence[Sequence[RunRecord]], field: str) -> list[str]:
    """The source files or data sets that differ. Their digests would say nothing to a reader."""
    entries = [[getattr(record, field) for record in side] for side in sides]
    names = dict.fromkeys(name for side in entries for entry in side for name in entry)
    texts = []
    for name in names:
        digests = [{entry[name] for entry in side if name in entry} for side in entries]
        if digests[0] != digests[1] and not name.endswith(AND_IMPORTS):
            unknown = [side for side, found in zip("AB", digests, strict=True) if not found]
            texts.append(f"{name} (unknown in {unknown[0]})" if unknown else name)
    return texts


def _difference(name: str, values: Sequence[Iterable[Any]]) -> str:
    """`torch 2.9 in A, 2.10 in B`; empty where both have the same values. None and an empty text are no values."""
    texts_a, texts_b = (sorted({_text(value) for value in side if value not in (None, "")}) for side in values)
    if texts_a == texts_b:
        return ""
    return f"{name} {' and '.join(texts_a) or 'unknown'} in A, {' and '.join(texts_b) or 'unknown'} in B"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


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
