"""What differs between the places, times and versions that two sweeps were measured in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import commit_text
from dmls_ray.util.source_digest import AND_IMPORTS


@dataclass(frozen=True)
class Difference:
    """A fact of which the runs of A and of B have other values."""

    name: str
    """`commit`, or `machine cpu`."""
    a: Sequence[str]
    """Values in A, each once; none where it is unknown."""
    b: Sequence[str]


def differences(a: Results, b: Results, trials: Collection[str]) -> list[Difference]:
    """The facts in which the runs of some trials differ between two sweeps."""
    of_a, of_b = _facts_of(a, trials), _facts_of(b, trials)
    found = []
    for name in dict.fromkeys([*of_a, *of_b]):
        values_a, values_b = sorted(of_a.get(name, ())), sorted(of_b.get(name, ()))
        if values_a != values_b:
            found.append(Difference(name, values_a, values_b))
    return found


def _facts_of(results: Results, trials: Collection[str]) -> dict[str, set[str]]:
    """Every value of each fact. A skipped run was not made; None and an empty text are no values."""
    values: dict[str, set[str]] = {}
    for record in results.records:
        if record.outcome is Outcome.SKIPPED or record.trial_id not in trials:
            continue
        for name, value in _facts_of_run(record).items():
            if value not in (None, ""):
                values.setdefault(name, set()).add(str(value))
    return values


def _facts_of_run(record: RunRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for field in ("machine", "versions", "code", "data"):
        for name, value in getattr(record, field).items():
            # An entry for a module with its imports differs whenever another entry does.
            if not name.endswith(AND_IMPORTS):
                facts[f"{field} {name}"] = value
    for name in ("device", "backend", "isolation", "mode", "oversubscribed"):
        facts[name] = getattr(record, name)
    facts["commit"] = commit_text(record.git)
    facts["compile_cache"] = record.facts.get("compile_cache")
    facts["day"] = record.started_at[:10]
    return facts
