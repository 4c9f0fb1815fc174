from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.analysis import figures
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries, Point
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import INTERVAL
from dmls_ray.analysis.table.named_layouts import shown_columns
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import own_results, results
from tests.reference_values import FOLDERS, REFERENCE

_TRAINING = ("throughput", "test accuracy", "tensor memory of a rank")
_COLUMNS = ("images/s", "tensor MiB", "test acc.")
QUESTIONS = {
    "accumulation": (_TRAINING, ("accum_steps", *_COLUMNS)),
    "backend": (_TRAINING, ("backend", *_COLUMNS)),
    "batch_size": (_TRAINING, ("batch_per_rank", *_COLUMNS)),
    "critical_batch": (
        ("optimizer steps to a test accuracy of 0.95", "seconds to a test accuracy of 0.95"),
        ("global_batch", "steps to target", "s to target"),
    ),
    "grayscale": (("a pass over 200 images", ""), ("implementation", "ms", "speed-up")),
    "launcher": (
        ("throughput", "test accuracy", "start-up", "tensor memory of a rank"),
        ("launcher", "start-up s", *_COLUMNS),
    ),
    "machines/simplecnn-1gbit": (_TRAINING, ("machines", "images/s", "test acc.")),
    "optimizer": (_TRAINING, ("optimizer", *_COLUMNS)),
    "precision": (_TRAINING, ("precision", *_COLUMNS)),
    "quantization": (
        ("test accuracy", "size of the checkpoint", "median latency, compiled", "training throughput"),
        ("fp32 test acc.", "int8 test acc.", "fp32 bytes", "int8 bytes", "fp32 compiled ms", "int8 compiled ms"),
    ),
    "regularization": (("test accuracy", "accuracy gap", "throughput"), ("change", "test acc.", "acc. gap")),
}
"""Folder of runs -> the quantities of the first figure, and columns of the table: what the sweep asks."""


def chart_names(runs: Results) -> list[str]:
    return [chart.name for chart in charts(make_table(runs))]


def test_no_runs_and_no_run_that_ended_ok_have_no_figures() -> None:
    runs = results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.outcome = Outcome.SKIPPED
    assert chart_names(runs) == []
    runs.records = []
    assert chart_names(runs) == []


def test_one_trial_has_no_figure_but_that_of_its_epochs() -> None:
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0)
    assert chart_names(runs) == ["learning"]
    for record in runs.records:
        del record.epochs[1:]
    assert chart_names(runs) == []


@pytest.mark.parametrize(("mode", "timed"), [("bench", {"scaling", "time"}), ("search", set())])
def test_times_of_runs_that_shared_the_machine_are_in_no_figure(mode: str, timed: set[str]) -> None:
    runs = results({"batch_per_rank": [16, 32], "world_size": [1, 2, 4]}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.mode = mode
    assert {*chart_names(runs)} == {"tradeoff", "memory", "learning"} | timed


def test_a_user_function_has_the_figures_of_the_metrics_it_reported() -> None:
    reported = {"images_per_s": 100.0, "epoch_s": 5.0, "test_accuracy": 0.5}
    runs = own_results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: (1.0, reported))
    assert chart_names(runs) == ["tradeoff", "scaling", "time"]


def notes_on(*panels: Panel, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    chart = Chart(name="some", title="Some", panels=panels)
    monkeypatch.setattr(figures, "FIGURES", {"some": lambda table: chart})
    (found,) = charts(make_table(results({"batch_per_rank": 16}, lambda values, repeat: 100.0)))
    return found.notes


def measured(name: str, count: int, *, runs: int = 3, connected: bool = True, kind: Any = "points") -> PlotSeries:
    points = [Point(x, x, x - 0.1, x + 0.1, tuple(map(str, range(runs)))) for x in range(count)]
    return PlotSeries(name, points, kind, connected=connected)


@pytest.mark.parametrize(
    ("drawn", "note"),
    [
        ([measured("a", 3)], "Error bars are 95% intervals over the 3 runs of a trial."),
        ([measured("a", 12)], "Bands are 95% intervals over the 3 runs of a trial."),
        ([measured("a", 3), measured("b", 12, runs=5)],
         "Error bars and bands are 95% intervals over the 3 to 5 runs of a trial."),
        ([measured("a", 2, kind="bar")], "Error bars are 95% intervals over the 3 runs of a trial."),
        ([PlotSeries("a", [*measured("a", 2).points, Point(3, 1.0, runs=("1", "2"))])],
         "Error bars are 95% intervals over the 3 runs of a trial. A point without one has no interval."),
        ([measured("a", 2, kind="line")], "Bands are 95% intervals over the 3 runs of a trial."),
    ],
)  # fmt: skip
def test_what_error_bars_and_bands_are_is_said_below_the_figure(
    drawn: list[PlotSeries], note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notes_on(Panel(series=drawn), monkeypatch=monkeypatch)[0] == note


def test_equal_lines_are_named_once_and_hidden_points_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = PlotAxis("memory (MiB)")
    lines = [PlotSeries(name, [Point(1, 0.5), Point(2, 0.7)]) for name in ("a", "b")]
    panels = [Panel(x=x, y=PlotAxis(f"{name} (%)"), series=lines) for name in ("first", "second")]
    alike = PlotSeries("others", [Point(1, 0.5), Point(1, 0.50001), Point(1, 0.6), Point(2, 0.5)])
    notes = notes_on(*panels, Panel(x=x, y=PlotAxis("accuracy (fraction)"), series=[alike]), monkeypatch=monkeypatch)
    assert notes == [
        "Equal values: a; b (first, second).",
        "Points hidden under equal ones: 1 (accuracy against memory).",
    ]


@pytest.mark.parametrize("folder", QUESTIONS)
def test_the_first_figure_and_the_table_of_each_question_show_what_it_asks(folder: str) -> None:
    table = summarize(load(REFERENCE / folder)).table
    shown, columns = QUESTIONS[folder]
    assert [panel.y.label.partition(" (")[0] for panel in charts(table)[0].panels] == list(shown)
    heads = [column.head.removesuffix(INTERVAL) for column in shown_columns(table).columns]
    assert [head for head in columns if head not in heads] == []


_OF_NO_TABLE = ("learning", "communication", "rank_spread", "step_times")
"""Figures of epochs, of shares of a step and of ranks, which the table of a sweep has no column of."""


def intervals_of(row: Trial) -> list[Interval]:
    """The intervals that a table has of a trial, and its efficiency."""
    found: list[Interval | None] = [*row.estimates.values(), row.speed_up]
    if row.speed_up is not None and row.speed_up.low is not None and row.speed_up.high is not None:
        ends = (row.speed_up.centre, row.speed_up.low, row.speed_up.high)
        found.append(Interval(*(end / row.world_size for end in ends)))
    return [value for value in found if value is not None]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(REFERENCE)))
def test_the_intervals_of_a_figure_are_those_of_its_table(folder: Path) -> None:
    summary = summarize(load(folder))
    table = summary.table
    of_answer = [effect.contrast for row in summary.answer.answer.comparisons for effect in row]
    rows = {record.run_id: row for row in table.rows for record in row.records}
    for chart in charts(table):
        for panel in chart.panels:
            points = [point for series in panel.series if series.kind == "points" for point in series.points]
            for point in points:
                if point.low is None or chart.name in _OF_NO_TABLE:
                    continue
                (row,) = {id(rows[run]): rows[run] for run in point.runs}.values()
                values = [*intervals_of(row), *of_answer]
                known = [(value.centre, value.low, value.high) for value in values if value.low is not None]
                ends = (point.y, point.low, point.high)
                assert any(ends == pytest.approx(value) for value in known), (chart.name, panel.y.label, point)
