from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.search import chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.outcome import Outcome
from tests.analysis.figures.reading import notes, panels, points, series
from tests.analysis.samples import own_results, results

AXES = {"lr": [0.001, 0.01, 0.1], "optimizer": ["adam", "sgd"], "batch_per_rank": 16}
ACCURACY = ("validation_accuracy", False)


def searched(axes: dict[str, Any] | None = None) -> Results:
    """A search, whose configurations have a validation accuracy by their place in the order."""
    found = results(axes or AXES, lambda values, repeat: 100.0, repeats=1)
    for record in found.records:
        record.mode, record.metrics["validation_accuracy"] = "search", 0.5 + 0.05 * (-1) ** record.order * record.order
    return found


def test_the_metric_is_drawn_by_trial_and_against_each_field_that_was_searched() -> None:
    by_trial, by_optimizer, by_lr = panels(chart(make_table(searched(), best_by=ACCURACY)), 3)
    assert {panel.y.label for panel in (by_trial, by_lr, by_optimizer)} == {"validation accuracy (fraction of samples)"}
    assert points(by_trial, "trained to the end") == pytest.approx({1: 0.5, 2: 0.45, 3: 0.6, 4: 0.35, 5: 0.7, 6: 0.25})
    assert points(by_trial, "best so far") == pytest.approx({1: 0.5, 2: 0.5, 3: 0.6, 4: 0.6, 5: 0.7, 6: 0.7})
    assert by_lr.x.log
    assert list(points(by_lr, "trained to the end")) == [0.001, 0.01, 0.1]
    assert list(by_optimizer.x.categories) == ["adam", "sgd"]
    least = panels(chart(make_table(searched(), best_by=("validation_accuracy", True))), 3)[0]
    assert points(least, "best so far")[6] == pytest.approx(0.25)


def test_trials_that_were_stopped_are_apart_and_one_without_a_value_is_a_cross() -> None:
    runs = searched()
    by_order = sorted(runs.records, key=lambda record: record.order)
    by_order[4].metrics["stopped_epoch"] = 1
    by_order[5].outcome, by_order[5].reason = Outcome.ERROR, "no such layer"
    by_trial, *_ = panels(chart(make_table(runs, best_by=ACCURACY)), 3)
    assert points(by_trial, "stopped early") == pytest.approx({5: 0.7})
    assert points(by_trial, "error") == {6: None}
    assert points(by_trial, "best so far")[4] == pytest.approx(0.6), "a value of an early epoch is not the best"
    assert series(by_trial, "stopped early").muted


def test_a_function_has_the_figure_of_its_metric() -> None:
    runs = own_results({"depth": [1, 2]}, lambda values, repeat: (1.0, {"bits": 8 / values["depth"]}), mode="search")
    _, by_depth = panels(chart(make_table(runs, best_by=("bits", True))), 2)
    assert (by_depth.y.label, points(by_depth, "trained to the end")) == ("bits", pytest.approx({1: 8, 2: 4}))


def test_the_report_of_a_search_begins_with_it() -> None:
    table = make_table(searched(), best_by=ACCURACY)
    table.axis = "lr"
    drawn = [item.name for item in charts(table)]
    assert drawn[0] == "search"
    assert "answer" not in drawn


def test_runs_that_were_measured_or_have_no_value_have_no_such_figure() -> None:
    assert chart(make_table(searched())) is None
    assert chart(make_table(searched(), best_by=("validation_loss", True))) is None


def test_of_many_fields_the_first_are_drawn_and_the_others_named() -> None:
    axes = {**AXES, "l1": [0.0, 0.1], "dropout": [0.1, 0.2], "label_smoothing": [0.0, 0.1], "weight_decay": [0.0, 0.1]}
    found = chart(make_table(searched(axes), best_by=ACCURACY))
    panels(found, 6)
    assert notes(found) == ["Not drawn: l1."]
