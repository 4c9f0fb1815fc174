"""What `load` and `sweep` return: trials, frames, the best trial and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.sweep_results import SweepResults
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import results

LEVELS = {16: 100.0, 32: 180.0, 64: 150.0}


def rate(values: dict[str, Any], repeat: int) -> float:
    return LEVELS[values["batch_per_rank"]] * (1 + repeat / 1000)


@pytest.fixture
def swept() -> SweepResults:
    def accuracy(values: dict[str, Any], repeat: int) -> float:
        return 1 - values["batch_per_rank"] / 100 + repeat / 1000

    return SweepResults.of_results(results({"batch_per_rank": [*LEVELS]}, rate, accuracy=accuracy))


def test_it_iterates_over_trials_and_has_as_many(swept: SweepResults) -> None:
    assert [trial.factors["batch_per_rank"] for trial in swept] == [16, 32, 64]
    assert len(swept) == 3


def test_a_row_of_the_frame_is_a_trial_with_its_intervals(swept: SweepResults) -> None:
    frame = swept.to_pandas().set_index("batch_per_rank")
    assert frame.loc[32, "images_per_s"] == pytest.approx(180, rel=0.01)
    assert (frame["images_per_s_low"] < frame["images_per_s"]).all()
    assert (frame["images_per_s"] < frame["images_per_s_high"]).all()


@pytest.mark.parametrize(("metric", "batch"), [(None, 32), ("test_accuracy", 16), ("total_s", 32)])
def test_the_best_trial_is_by_throughput_or_a_metric_in_its_direction(
    swept: SweepResults, metric: str | None, batch: int
) -> None:
    assert swept.best(metric).factors["batch_per_rank"] == batch


def test_without_a_direction_nothing_is_the_best(swept: SweepResults) -> None:
    with pytest.raises(ConfigError, match="no trial is the best by absent; give one of .*images_per_s"):
        swept.best("absent")


def test_rows_of_epochs_have_the_fields_that_vary(swept: SweepResults) -> None:
    assert swept.epochs.groupby("batch_per_rank")["epoch"].max().to_dict() == dict.fromkeys(LEVELS, 2)
    assert "lr" not in swept.epochs


def test_html_has_the_headline_and_the_table_and_no_tag_of_a_value(swept: SweepResults) -> None:
    for record in swept.records:
        record.reason = "<b>"
    html = swept._repr_html_()
    assert swept.summary.answer.headline in html
    assert html.count("<tr") == 4
    assert "16" in html
    assert swept.summary.answer.headline in str(swept).replace("\n", " ")


def test_a_figure_is_shown_and_saved(swept: SweepResults, tmp_path: Path) -> None:
    figure = swept.plot()
    assert figure.chart.name == "answer"
    assert figure._repr_svg_().startswith("<svg")
    assert [path.suffix for path in swept.plot("time").save(tmp_path)] == [".png", ".svg", ".pdf"]
    with pytest.raises(ConfigError, match="there is no figure absent; these runs have answer"):
        swept.plot("absent")
