"""Two sweeps joined by configuration: what is in both, what in one alone, and by what they can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dmls_ray.analysis.metrics import in_tables, is_time, table_metrics
from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, join_names
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError


@dataclass(frozen=True)
class Joined:
    """The configurations of two sweeps, by the fields in which any of them differ."""

    both: Sequence[tuple[Row, Row]]
    """A's runs and B's of each configuration that both have."""
    only: Mapping[str, Sequence[str]]
    """The configurations that A alone, and B alone, has, in words."""


def join(a: Results, b: Results) -> Joined:
    """Join two sweeps by configuration, which has the same hash on every machine.

    Raises:
        ConfigError: a sweep has no run, no configuration is in both, or runs of A are those of B.
    """
    for results in (a, b):
        if not results.records:
            raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
    runs_a, runs_b = ({(record.run_id, record.session, record.started_at) for record in side.records if record.session}
                  for side in (a, b))  # fmt: skip
    if shared := len(runs_a & runs_b):
        raise ConfigError(
            f"{count_noun(shared, 'run')} of {b.where} and of {a.where} are the same, not one measured twice; give two "
            "folders that were measured apart (--out, or --fresh)."
        )
    if not {record.trial_id for record in a.records} & {record.trial_id for record in b.records}:
        raise ConfigError(_nothing_in_common(a, b))
    ids = {id(record) for record in a.records}
    both: list[tuple[Row, Row]] = []
    only: dict[str, list[str]] = {"A": [], "B": []}
    # One table of both, so that the rows of A and of B have the same fields in the same order.
    for row in make_table(a.of([*a.records, *b.records])).rows:
        of_a = [record for record in row.records if id(record) in ids]
        of_b = [record for record in row.records if id(record) not in ids]
        if of_a and of_b:
            both.append((Row(row.trial_id, row.factors, of_a), Row(row.trial_id, row.factors, of_b)))
        else:
            only["A" if of_a else "B"].append(describe_configuration(row.factors))
    return Joined(both, only)


def common_measure(a: Results, b: Results, name: str | None) -> str:
    """By what two sweeps are compared: what was asked for; else images_per_s where both have it, or total_s.

    Raises:
        ConfigError: there is no such measure, or not of both.
    """
    reported = [_measures_of(side) for side in (a, b)]
    names = reported[0] & reported[1] or reported[0] | reported[1]
    choices = ", ".join([*(name for name in table_metrics() if name in names), *sorted(names - table_metrics().keys())])
    if name is None:
        name = "images_per_s" if all("images_per_s" in side for side in reported) else "total_s"
    if name not in table_metrics() and not any(name in side for side in reported):
        raise ConfigError(f"--measure {name} is unknown; choose from {choices}.")
    for results, of_side in zip((a, b), reported, strict=True):
        if name in of_side or not any(record.outcome is Outcome.OK for record in results.records):
            continue
        if is_time(name) and all(record.mode == "search" for record in results.records):
            raise ConfigError(
                f"--measure {name} of {results.where} says nothing: its runs went side by side, in a search. Give "
                "--measure test_accuracy, or measure its configurations again with --mode bench."
            )
        raise ConfigError(f"--measure {name} is not known of {results.where}; choose from {choices}.")
    return name


def _measures_of(results: Results) -> set[str]:
    """What any run of a sweep that ended ok was measured by."""
    names: set[str] = set()
    for record in results.records:
        if record.outcome is Outcome.OK:
            names |= {
                name for name in record.metrics if in_tables(name) and (record.mode == "bench" or not is_time(name))
            }
    return names


def _nothing_in_common(a: Results, b: Results) -> str:
    """Why no configuration is in both: the fields that have no value in common."""
    values_a, values_b = (_factor_values(side) for side in (a, b))
    apart = [
        f"{name} ({', '.join(sorted(of_a)[:4])} against {', '.join(sorted(of_b)[:4])})"
        for name, of_a in values_a.items()
        if not of_a & (of_b := values_b.get(name, {"none"}))
    ]
    why = f": they differ in {join_names(apart)}" if apart else ""
    return (
        f"no configuration is both in {a.where} and in {b.where}{why}. Give two sweeps of the same configurations; "
        "to compare configurations with each other, make them axes of one sweep."
    )


def _factor_values(results: Results) -> dict[str, set[str]]:
    """Every value that each field of the configurations has."""
    values: dict[str, set[str]] = {}
    for record in {record.trial_id: record for record in results.records}.values():
        for name, value in factors_of(record).items():
            values.setdefault(name, set()).add(str(value))
    return values
