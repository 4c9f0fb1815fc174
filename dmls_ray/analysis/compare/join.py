"""Two sweeps joined by configuration: what is in both, and what in one alone."""

from __future__ import annotations

from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.labels import describe_configuration
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.hashing import digest
from dmls_ray.records.model import RunRecord
from dmls_ray.util.errors import ConfigError


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
