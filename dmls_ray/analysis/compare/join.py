"""Two sweeps joined by configuration: what is in both, what in one alone, and what else differs between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.config.hashing import digest
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import commit_text
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.source_digest import AND_IMPORTS


def join(a: Results, b: Results) -> tuple[list[tuple[Trial, Trial]], dict[str, list[str]]]:
    """Join two sweeps of `by_configuration`.

    Returns:
        The runs of A and those of B of each trial that both have; and the configurations, in words, that one alone has.

    Raises:
        ConfigError: a sweep has no run, no configuration is in both, or runs of A are those of B.
    """
    runs = []
    for results in (a, b):
        if not results.records:
            raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
        # A run without a session was recorded elsewhere.
        runs.append({(item.run_id, item.session, item.started_at) for item in results.records if item.session})
    if shared := runs[0] & runs[1]:
        raise ConfigError(
            f"{len(shared)} runs of {b.where} and of {a.where} are the same, not one measured twice; give two "
            "folders that were measured apart (--out, or --fresh)."
        )
    ids = {id(record) for record in a.records}
    both: list[tuple[Trial, Trial]] = []
    only: dict[str, list[str]] = {"A": [], "B": []}
    # One table of both, so that the rows of A and of B have the same fields in the same order.
    for row in make_table(a.of([*a.records, *b.records])).rows:
        of_a = [record for record in row.records if id(record) in ids]
        of_b = [record for record in row.records if id(record) not in ids]
        if of_a and of_b:
            both.append((Trial(row.trial_id, row.factors, of_a), Trial(row.trial_id, row.factors, of_b)))
        else:
            only["A" if of_a else "B"].append(describe_configuration(row.factors))
    if not both:
        raise ConfigError(
            f"no configuration is both in {a.where} ({only['A'][0]}, ...) and in {b.where} ({only['B'][0]}, ...). Give "
            "two sweeps of the same configurations; to compare configurations, make them axes of one sweep."
        )
    return both, only


def by_configuration(a: Results, b: Results) -> tuple[Results, Results]:
    """Both sweeps with one trial_id for each configuration, whichever code and data its runs had."""
    ids: dict[str, str] = {}

    def named(record: RunRecord) -> RunRecord:
        if not record.code and not record.data:
            return record
        return record.replace(trial_id=ids.setdefault(digest(factors_of(record)), record.trial_id))

    return a.of([named(record) for record in a.records]), b.of([named(record) for record in b.records])


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
