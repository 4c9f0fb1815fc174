"""Printed numbers of runs that were ended after different steps are those of the same step."""

from __future__ import annotations

from typing import Any

from dmls_ray.analysis.findings.answer import answer_along
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.records.model import Series
from tests.analysis.samples import script_results

LONG, SHORT = 50, 15


def table_of(count: dict[int, int], *, was_ended: bool = True, steps: dict[int, int] | None = None) -> Table:
    """Runs that printed their loss so often, 1/k for the k-th time, up to 50 or 15 steps."""

    def tell(values: dict[str, Any], repeat: int) -> dict[str, Any]:
        delay = values["delay"]
        made = (steps or {20: LONG, 200: SHORT})[delay]
        losses = [1 / k for k in range(1, count[delay] + 1)]
        series = {"loss_now": Series(first=losses[:50], count=len(losses))}
        return {"steps_made": made, "was_ended": was_ended, "series": series, "loss_now": losses[-1]}

    return make_table(script_results({"delay": [20, 200]}, tell))


def values_of(table: Table) -> list[float | None]:
    return [row.value_of("loss_now") for row in table.rows]


def test_the_value_of_the_least_count_is_compared() -> None:
    table = table_of({20: 49, 200: 14})
    assert values_of(table) == [1 / 14, 1 / 14]
    assert any(
        "loss_now: runs ended after different numbers of steps, so the 14th value" in note for note in table.notes
    )
    (comparison,) = answer_along(table, "delay").comparisons
    assert "loss_now" not in {effect.measure.metric for effect in comparison}


def test_what_is_printed_at_the_end_is_not_compared_where_the_ends_differ() -> None:
    table = table_of({20: 1, 200: 1})
    assert values_of(table) == [None, None]
    assert any("loss_now: not shown, because" in note for note in table.notes)


def test_values_of_other_steps_are_not_compared() -> None:
    # Each step of one, each fifth of the other.
    assert values_of(table_of({20: 50, 200: 3})) == [None, None]


def test_values_after_the_fiftieth_are_not_known() -> None:
    assert values_of(table_of({20: 100, 200: 60}, steps={20: 100, 200: 60})) == [None, None]


def test_of_runs_that_ended_by_themselves_or_after_equal_steps_the_last_value_is_compared() -> None:
    assert values_of(table_of({20: 49, 200: 14}, was_ended=False)) == [1 / 49, 1 / 14]
    assert values_of(table_of({20: 50, 200: 10}, steps={20: 50, 200: 50})) == [1 / 50, 1 / 10]
