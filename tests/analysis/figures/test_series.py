from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.series import (
    Line,
    batch_axis,
    default_axis,
    factor_axis,
    limit_items,
    limit_rows,
    lines_along,
    measured_series,
    oom_crosses,
    trial_axis,
    trial_label,
    trial_labels,
)
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from tests.analysis.samples import own_results, results

GRID = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


def table_of(axes: dict[str, Any], rate: Any = lambda values, repeat: 100.0, **more: Any) -> Table:
    return make_table(results(axes, rate, **more))


def test_a_line_holds_trials_that_differ_in_its_axis_alone_and_is_named_by_the_rest() -> None:
    table = table_of(GRID)
    lines = lines_along(table, table.rows, "world_size")
    assert [line.name for line in lines] == ["batch_per_rank 16", "batch_per_rank 32"]
    assert [[row.world_size for row in line.rows] for line in lines] == [[1, 2], [1, 2]]


def test_the_batch_field_that_is_not_fixed_names_no_line() -> None:
    table = table_of({"global_batch": [64, 128], "world_size": [1, 2]})
    assert [line.name for line in lines_along(table, table.rows, "world_size")] == [
        "global_batch 64",
        "global_batch 128",
    ]
    assert batch_axis(table) == "global_batch"


def test_one_line_alone_is_called_measured() -> None:
    table = table_of({"batch_per_rank": [16, 32]})
    assert [line.name for line in lines_along(table, table.rows, "batch_per_rank")] == ["measured"]


def test_where_no_two_trials_differ_in_the_axis_alone_there_is_no_line() -> None:
    table = table_of({"batch_per_rank": 16}, variants=({"dropout": 0.3}, {"l1": 0.1}))
    assert lines_along(table, table.rows, "dropout") == []


def test_names_are_never_the_axis_of_a_line() -> None:
    table = table_of({"batch_per_rank": 16, "optimizer": ["adam", "sgd"]})
    assert lines_along(table, table.rows, "optimizer") == []
    assert default_axis(table, table.rows) == ""


def test_the_default_axis_is_the_ranks_before_the_batch() -> None:
    table = table_of(GRID)
    assert default_axis(table, table.rows) == "world_size"
    assert default_axis(table, [row for row in table.rows if row.world_size == 2]) == "batch_per_rank"


def test_a_label_of_many_fields_has_those_that_are_not_at_their_default() -> None:
    table = table_of({"batch_per_rank": 16}, variants=({}, {"dropout": 0.3}, {"l1": 0.1, "lr": 0.01}))
    labels = sorted(trial_labels(table, table.rows))
    assert labels == ["dropout 0.3", "lr 0.001, dropout None, l1 0", "lr 0.01, l1 0.1"], "one at its defaults has all"


def test_a_trial_of_changes_is_named_by_its_change() -> None:
    table = table_of({"batch_per_rank": [16, 32]}, variants=({}, {"dropout": 0.3}))
    table.changed = ("dropout",)
    assert sorted(trial_labels(table, table.rows)) == [
        "baseline, batch_per_rank 16", "baseline, batch_per_rank 32", "dropout=0.3, batch_per_rank 16",
        "dropout=0.3, batch_per_rank 32",
    ]  # fmt: skip


def test_a_field_that_was_changed_in_one_trial_is_no_axis() -> None:
    table = table_of({"batch_per_rank": 16}, variants=({}, {"l1": 0.1}, {"weight_decay": 0.1}))
    assert default_axis(table, table.rows) == "weight_decay"
    table.changed = ("l1", "weight_decay")
    assert default_axis(table, table.rows) == ""


def test_ranks_and_batch_are_in_the_label_even_at_their_default() -> None:
    table = table_of({**GRID, "lr": [0.001, 0.1]})
    assert trial_labels(table, table.rows)[:2] == [
        "world_size 1, batch_per_rank 16",
        "world_size 1, batch_per_rank 16, lr 0.1",
    ]


def test_user_defined_fields_are_always_in_the_label() -> None:
    table = make_table(own_results({"lr": [1, 2], "b": [1, 2], "c": [1, 2]}, lambda values, repeat: (1.0, {})))
    assert trial_label(table.rows[0], ["lr", "b", "c"]) == "lr 1, b 1, c 1"


def test_an_axis_of_names_has_a_fields_values_or_the_labels_of_the_trials() -> None:
    table = table_of({"batch_per_rank": 16, "optimizer": ["adam", "sgd"]})
    axis, texts = trial_axis(table, table.rows)
    assert (axis.label, axis.categories, texts) == ("optimizer", ["adam", "sgd"], ["adam", "sgd"])
    both = table_of({"batch_per_rank": 16, "optimizer": ["adam", "sgd"], "precision": ["fp32", "amp-bf16"]})
    axis, texts = trial_axis(both, both.rows)
    assert axis.label == "trial"
    assert texts[0] == "optimizer adam, precision fp32"


def test_an_axis_of_numbers_has_its_unit_and_is_logarithmic_from_two_doublings_on() -> None:
    table = table_of({"batch_per_rank": [16, 32, 64]})
    axis = factor_axis([Line("a", "batch_per_rank", table.rows)])
    assert axis.label == "batch_per_rank (samples)"
    assert axis.log
    assert not factor_axis([Line("a", "batch_per_rank", table.rows[:2])]).log


def test_a_single_trial_is_named_by_the_fields_that_vary_in_the_table() -> None:
    table = table_of(GRID)
    assert trial_labels(table, table.rows[:1]) == ["world_size 1, batch_per_rank 16"]
    assert trial_labels(table_of({"batch_per_rank": 16}), table_of({"batch_per_rank": 16}).rows) == [""]


def test_points_are_means_with_their_intervals_and_runs() -> None:
    table = table_of({"batch_per_rank": 16}, lambda values, repeat: [100.0, 300.0, 200.0][repeat])
    (row,) = table.rows
    (series,) = measured_series("a", [(16, row, row.rates()), (32, row, {})])
    expected = estimate([100.0, 300.0, 200.0], "amount")
    assert (list(series.x), list(series.y)) == ([16], [expected.centre])
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
def test_the_best_trials_of_a_search_are_drawn(mode: str, last: int) -> None:
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
