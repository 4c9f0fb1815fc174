from __future__ import annotations

from typing import Any

from dmls_ray.analysis.figures import series as plot
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from tests.analysis.figures.reading import points, series
from tests.analysis.samples import results

GRID = {"batch_per_rank": [16, 32], "world_size": [1, 2]}
DIGITS = {"batch_per_rank": 16, "optimizer": ["adam", "sgd"]}


def table_of(axes: dict[str, Any], rate: Any = lambda values, repeat: 100.0, **more: Any) -> Table:
    return make_table(results(axes, rate, **more))


def line_names(table: Table, field: str) -> list[str]:
    return [line.name for line in plot.lines_along(table, table.rows, field)[1]]


def test_a_line_holds_trials_that_differ_in_its_axis_alone_and_is_named_by_the_rest() -> None:
    table = table_of(GRID)
    assert line_names(table, "world_size") == ["batch_per_rank 16", "batch_per_rank 32"]
    _, lines = plot.lines_along(table, table.rows, "world_size")
    assert [[line.place(row) for row in line.rows] for line in lines] == [[1, 2], [1, 2]]
    assert line_names(table_of({"batch_per_rank": [16, 32]}), "batch_per_rank") == ["measured"], "one line alone"


def test_choices_are_categories_and_numbers_a_logarithmic_axis_with_a_tick_each_from_two_doublings_on() -> None:
    table = table_of(DIGITS)
    assert plot.lines_along(table, table.rows, "optimizer")[0].categories == ["adam", "sgd"]
    rows = table_of({"batch_per_rank": [16, 32, 64]}).rows
    axis = plot.field_axis("batch_per_rank", rows)
    assert (axis.label, axis.log, axis.ticks) == ("batch_per_rank (samples)", True, [16, 32, 64])
    assert not plot.field_axis("batch_per_rank", rows[:2]).log


def test_points_are_means_with_their_intervals_and_runs() -> None:
    table = table_of({"batch_per_rank": 16}, lambda values, repeat: [100.0, 300.0, 200.0][repeat])
    (row,) = table.rows
    (found,) = plot.measured_series("a", [(16, row, row.rates()), (32, row, {})], quantity="rate")
    expected = estimate([100.0, 300.0, 200.0], "rate")
    runs = tuple(record.run_id for record in row.records)
    assert found.points == [(16, expected.centre, expected.low, expected.high, runs, "n=3")]
    assert plot.measured_series("a", [(16, row, {})]) == []
    (twice,) = plot.measured_series("a", [(16, row, {0: 100.0, 1: 300.0})], describe=lambda row: "two")
    assert twice.points[0][2:] == (None, None, runs[:2], "two, n=2"), "two repeats have no interval"


def test_a_trial_of_which_one_run_was_out_of_memory_has_a_cross_that_says_so() -> None:
    table = table_of(
        {"batch_per_rank": [16, 32]}, lambda values, repeat: None if values["batch_per_rank"] == 32 and repeat else 9.0
    )
    x, lines = plot.lines_along(table, table.rows, "batch_per_rank")
    (panel,) = plot.line_panels([plot.plotted_metric("epoch_s")], x, lines)
    assert points(panel, "measured").keys() == {16, 32}
    cross = series(panel, "oom")
    (point,) = cross.points
    assert (cross.kind, cross.same_as, point.x, point.y) == ("cross", "measured", 32, None)
    assert (point.text, len(point.runs)) == ("2 of 3 runs: 8 GiB asked for", 2)


def test_a_trial_of_changes_is_named_by_its_change() -> None:
    table = table_of({"batch_per_rank": [16, 32]}, variants=({}, {"dropout": 0.3}))
    table.changed = ("dropout",)
    assert sorted(plot.trial_labels(table, table.rows)) == [
        "baseline, batch_per_rank 16", "baseline, batch_per_rank 32", "dropout=0.3, batch_per_rank 16",
        "dropout=0.3, batch_per_rank 32",
    ]  # fmt: skip


def test_no_more_is_drawn_than_is_distinguishable_and_the_rest_is_counted() -> None:
    assert plot.limit_items(list(range(8)), "trials") == (list(range(8)), [])
    kept, notes = plot.limit_items(list(range(22)), "trials")
    assert kept == [0, 3, 6, 9, 12, 15, 18, 21]
    assert notes == ["8 of 22 trials are drawn; the table has all of them."]
    assert plot.limit_items(list(range(22)), "trials", 2)[0] == [0, 21]
