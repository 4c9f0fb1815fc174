"""The answer of a search: which configuration reached the best value of a metric, among how many."""

from __future__ import annotations

from dmls_ray.analysis.stats.formatting import GENERIC
from dmls_ray.analysis.summary.answer import Answer, Finding
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, join_names
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.records.outcome import Outcome

_CAUTION = "the best of many looks better than it is; train it again with other seeds before you trust it"


def best_first(table: Table, metric: str, *, minimizes: bool) -> list[Row]:
    """The rows that reported a metric, the best first; without those that were stopped early if others were not."""
    reported = [row for row in table.rows if row.value_of(metric) is not None]
    # A value of an early epoch is not compared with that of a whole training.
    finished = [row for row in reported if not row.is_stopped]
    return sorted(finished or reported, key=lambda row: _level_of(row, metric), reverse=not minimizes)


def answer_of_search(table: Table, metric: str, *, minimizes: bool) -> Answer:
    """Which configuration reached the best value of a metric, among how many, and how the next one did.

    Args:
        table: the search's table.
        metric: what was searched for.
        minimizes: whether less of it is better.
    """
    ranked = best_first(table, metric, minimizes=minimizes)
    if not ranked:
        return Answer(f"No run that ended ok reported its {metric}, so nothing can be said of it.")
    is_cut = len(ranked) < sum(row.value_of(metric) is not None for row in table.rows)
    best_level = _level_of(ranked[0], metric)
    equal = [row for row in ranked if _level_of(row, metric) == best_level]
    names = join_names([describe_configuration(row.factors) for row in equal], separator=", and with ")
    of_what = f"{count_noun(len(ranked), 'configuration')}{' that trained to the end' if is_cut else ''}"
    best = f"The {'least' if minimizes else 'highest'} {metric} of {of_what} is"
    findings = [
        Finding("next", f"{GENERIC(_level_of(row, metric))}, with {describe_configuration(row.factors)}")
        for row in ranked[len(equal) :][:1]
    ]
    stopped = sum(record.is_stopped and record.outcome is Outcome.OK
                  for row in table.rows for record in row.records)  # fmt: skip
    if stopped:
        findings.append(Finding("stopped early", count_noun(stopped, "run")))
    findings.append(Finding("caution", _CAUTION))
    return Answer(f"{best} {GENERIC(best_level)}, with {names}.", findings)


def _level_of(row: Row, name: str) -> float:
    level = row.value_of(name)
    assert level is not None, name
    return level
