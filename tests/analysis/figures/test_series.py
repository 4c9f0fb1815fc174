from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.lines import lines_along
from dmls_ray.analysis.figures.series import limit_items, limit_rows, measured_series, oom_crosses
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from tests.analysis.samples import own_results, results

GRID = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


def table_of(axes: dict[str, Any], rate: Any = lambda values, repeat: 100.0, **more: Any) -> Table:
    return make_table(results(axes, rate, **more))


def test_points_are_medians_with_their_intervals_and_runs() -> None:
    table = table_of({"batch_per_rank": 16}, lambda values, repeat: [100.0, 300.0, 200.0][repeat])
    (row,) = table.rows
    (series,) = measured_series("a", [(16, row, row.rates()), (32, row, {})])
    expected = estimate([100.0, 300.0, 200.0], "amount")
    assert (list(series.x), list(series.y)) == ([16], [200.0])
    assert (list(series.low), list(series.high)) == ([expected.low], [expected.high])
    assert series.runs == [tuple(record.run_id for record in row.records)]
    assert series.texts == ["n=3"]
    assert not series.connected
    assert measured_series("a", [(16, row, {})]) == []


def test_two_repeats_have_no_interval() -> None:
    table = table_of({"batch_per_rank": 16}, repeats=2)
    (series,) = measured_series("a", [(16, table.rows[0], table.rows[0].rates())])
    assert (list(series.low), list(series.high)) == ([None], [None])


def test_a_trial_of_which_one_run_was_out_of_memory_has_a_cross_that_says_so() -> None:
    table = table_of(
        {"batch_per_rank": [16, 32]}, lambda values, repeat: None if values["batch_per_rank"] == 32 and repeat else 9.0
    )
    (line,) = lines_along(table, table.rows, "batch_per_rank")
    (cross,) = oom_crosses(line, limit=512.0)
    assert (cross.kind, list(cross.x), list(cross.y), cross.same_as) == ("cross", [32], [512.0], "measured")
    assert cross.texts == ["2 of 3 runs: 8 GiB asked for"]
    assert [len(runs) for runs in cross.runs] == [2]


def test_no_more_is_drawn_than_is_distinguishable_and_the_rest_is_counted() -> None:
    assert limit_items(list(range(8)), "trials") == (list(range(8)), ())
    kept, (note,) = limit_items(list(range(22)), "trials")
    assert kept == [0, 3, 6, 9, 12, 15, 18, 21]
    assert note == "8 of 22 trials are drawn, spread evenly over the table; the table has the other 14."
    assert limit_items(list(range(22)), "trials", 2)[0] == [0, 21]


@pytest.mark.parametrize(("mode", "last"), [("search", 7), ("bench", 9)])
def test_of_a_search_the_best_trials_are_drawn(mode: str, last: int) -> None:
    runs = own_results({"depth": list(range(10))}, lambda values, repeat: (1.0, {"bits": values["depth"]}), mode=mode)
    table = make_table(runs, best_by=("bits", True))
    kept, (note,) = limit_rows(table, table.rows, lambda row: row.factors["depth"] > 0)
    assert [row.factors["depth"] for row in kept][-1] == last
    assert note.startswith("7 of 10 trials are drawn, ")


def test_trials_with_nothing_to_show_are_counted_even_if_all_could_be_drawn() -> None:
    table = table_of({"batch_per_rank": [16, 32, 64]})
    assert limit_rows(table, table.rows, lambda row: True) == (table.rows, ())
    kept, (note,) = limit_rows(table, table.rows, lambda row: row.factors["batch_per_rank"] > 16)
    assert kept == table.rows[1:]
    assert note == "2 of 3 trials are drawn: the other has nothing to show here."
