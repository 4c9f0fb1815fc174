from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.changes import chart
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from tests.analysis.figures.reading import names, panels, points, series
from tests.analysis.samples import results

CHANGES: tuple[dict[str, float], ...] = ({}, {"dropout": 0.3}, {"l1": 0.1}, {"label_smoothing": 0.1, "l1": 0.1})
CHANGED = ("dropout", "l1", "label_smoothing")


def accuracy(values: dict[str, Any], repeat: int) -> float:
    return 0.8 + (values["dropout"] or 0) / 10 - values["l1"] + 0.01 * repeat


def changed(axes: dict[str, Any]) -> Table:
    runs = results(axes, lambda values, repeat: 100.0, accuracy=accuracy, variants=CHANGES)
    for record in runs.records:
        record.metrics["accuracy_gap"] = 0.1
    table = make_table(runs)
    table.changed, table.axis = CHANGED, "dropout"
    return table


def test_each_change_is_a_category_with_its_interval_and_the_baseline_a_line() -> None:
    found = chart(changed({"batch_per_rank": 16}))
    reached, gap, _ = panels(found, 3)
    assert found is not None
    assert found.title == "Test accuracy, accuracy gap and throughput by change"
    assert list(reached.x.categories) == ["l1=0.1", "label_smoothing=0.1 l1=0.1", "dropout=0.3"], "as in the table"
    assert points(reached, "measured") == pytest.approx(
        {"dropout=0.3": 0.84, "l1=0.1": 0.71, "label_smoothing=0.1 l1=0.1": 0.71}
    )
    assert all(point.low < point.y < point.high for point in series(reached, "measured").points)  # type: ignore[operator]
    baseline = series(reached, "baseline")
    assert (baseline.kind, points(reached, "baseline")) == (
        "line",
        pytest.approx({"l1=0.1": 0.81, "dropout=0.3": 0.81}),
    )
    assert len({(point.low, point.high) for point in baseline.points} - {(None, None)}) == 1
    assert points(gap, "measured") == pytest.approx(dict.fromkeys(gap.x.categories, 0.1))


def test_the_report_begins_with_it_and_not_with_one_of_the_fields() -> None:
    drawn = [item.name for item in charts(changed({"batch_per_rank": 16}))]
    assert drawn[0] == "changes"
    assert "answer" not in drawn


def test_changes_at_several_points_of_a_grid_are_a_series_each_with_a_baseline() -> None:
    reached, _, _ = panels(chart(changed({"batch_per_rank": [16, 32]})), 3)
    assert names(reached) == [
        "batch_per_rank 16", "baseline, batch_per_rank 16", "batch_per_rank 32", "baseline, batch_per_rank 32"
    ]  # fmt: skip


def test_without_changes_there_is_no_such_figure() -> None:
    table = changed({"batch_per_rank": 16})
    table.changed = ()
    assert chart(table) is None
    table.rows, table.changed = [row for row in table.rows if row.factors["dropout"] is None][:1], CHANGED
    assert chart(table) is None, "the baseline alone"
