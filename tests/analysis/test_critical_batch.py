from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmls_ray.analysis.critical_batch import CriticalBatch, critical_batch, describe_critical
from dmls_ray.analysis.figures.critical_batch import chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary.critical_batch import answer_on_critical_batch
from dmls_ray.analysis.summary.sweep_summary import answer_on_axis
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, panels, points
from tests.analysis.samples import results

BATCHES = [8, 16, 32, 64, 128, 256]
RATES = [0.001, 0.002, 0.004]


def runs(critical: float, fewest: float = 50.0, noise: float = 0.0, repeats: int = 6, best: float = 0.002) -> Results:
    """Runs whose steps to the target follow the curve at the best learning rate, and 1.5 times it at others."""
    random = np.random.default_rng(3)
    grid = {"global_batch": BATCHES, "lr": RATES, "target_accuracy": 0.9}
    swept = results(grid, lambda values, repeat: 1000.0, repeats=repeats)
    for record in swept.records:
        steps = fewest * (1 + critical / record.config["batch_per_rank"])
        worse = 1.0 if record.config["lr"] == best else 1.5
        record.target_steps = round(steps * worse * float(random.lognormal(0, noise)))
        record.target_s = record.target_steps * 0.001 * (1 + record.config["batch_per_rank"] / 100)
    return swept


def found_in(swept: Results) -> CriticalBatch:
    found = critical_batch(make_table(swept))
    assert found is not None
    return found


def test_the_critical_batch_of_the_curve_is_found_again() -> None:
    found = found_in(runs(critical=60))
    assert found.critical is not None
    assert found.critical.centre == pytest.approx(60, rel=0.02)
    assert found.fewest_steps == pytest.approx(50, rel=0.02)
    assert found.curve(60) == pytest.approx(100, rel=0.02)


def test_its_interval_holds_the_true_one_in_about_95_of_100_noisy_sweeps() -> None:
    random = np.random.default_rng(8)
    held = 0
    for _ in range(60):
        swept = runs(critical=60, noise=0.0, repeats=4)
        for record in swept.records:
            record.target_steps = round((record.target_steps or 1) * float(random.lognormal(0, 0.1)))
        critical = found_in(swept).critical
        assert critical is not None
        held += (critical.low or 0) <= 60 <= (critical.high or 0)
    assert held >= 53


def test_each_batch_is_judged_at_its_best_learning_rate_which_other_runs_chose() -> None:
    found = found_in(runs(critical=60))
    assert found.is_split
    assert {point.row.records[0].config["lr"] for point in found.points} == {0.002}
    assert {point.runs for point in found.points} == {3}
    assert not any(point.is_at_edge for point in found.points)


def test_few_repeats_choose_and_are_reported_and_the_answer_says_so() -> None:
    found = found_in(runs(critical=60, repeats=3))
    assert not found.is_split
    assert "which flatters them" in answer_on_critical_batch(found).text


def test_a_best_learning_rate_at_the_edge_of_those_tried_is_named() -> None:
    text = answer_on_critical_batch(found_in(runs(critical=60, best=0.004))).text
    assert "at the edge of those tried: 8, 16, 32, 64, 128, 256" in text


def test_a_learning_rate_with_which_a_run_did_not_get_there_is_worse_than_any() -> None:
    swept = runs(critical=60)
    for record in swept.records:
        if record.config["lr"] == 0.002 and record.repeat == 0:
            record.target_steps = record.target_s = None
    assert 0.002 not in {point.row.records[0].config["lr"] for point in found_in(swept).points}


def test_a_batch_that_never_gets_there_is_a_cross_and_is_in_no_curve() -> None:
    swept = runs(critical=60)
    for record in swept.records:
        if record.config["batch_per_rank"] == 256:
            record.target_steps = record.target_s = None
    found = found_in(swept)
    assert found.points[-1].steps is None
    assert found.critical is not None
    assert found.critical.centre == pytest.approx(60, rel=0.02)
    steps, _ = panels(chart(make_table(swept)), 2)
    assert points(steps, "not reached") == {256.0: None}
    assert "256 (0 of 3 runs)" in answer_on_critical_batch(found).text


@pytest.mark.parametrize(
    ("critical", "headline"),
    [
        (60, "Beyond a global_batch of about 60 larger batches save less than half of the steps to 0.9."),
        (1e7, "Up to global_batch 256 larger batches save steps to 0.9 in proportion."),
        (0.001, "From global_batch 8 on larger batches hardly save steps to 0.9."),
    ],
)
def test_the_headline_says_where_larger_batches_stop_to_help(critical: float, headline: str) -> None:
    answer = answer_on_axis(make_table(runs(critical)), "global_batch")
    assert answer.headline == headline
    assert len(headline.split()) <= 25


def test_fewer_than_four_batches_have_no_curve() -> None:
    swept = runs(critical=60)
    swept = swept.of([record for record in swept.records if record.config["batch_per_rank"] < 64])
    found = found_in(swept)
    assert found.critical is None
    assert describe_critical(found) == "unknown: fewer than 4 batches reach 0.9 in every run"
    assert "is not known" in answer_on_critical_batch(found).headline


def test_the_figure_has_perfect_scaling_and_the_curve() -> None:
    steps, seconds = panels(chart(make_table(runs(critical=60))), 2)
    assert names(steps) == ["best learning rate", "perfect scaling", "S_min (1 + B_crit / B)", "critical batch"]
    assert points(steps, "perfect scaling")[256.0] == pytest.approx(50 * (1 + 60 / 8) * 8 / 256, rel=0.02)
    assert names(seconds) == ["best learning rate"]


def test_a_sweep_without_a_target_or_over_something_else_has_no_critical_batch() -> None:
    def swept(**axes: Any) -> Results:
        return results({"batch_per_rank": [16, 32], **axes}, lambda values, repeat: 1.0)

    assert critical_batch(make_table(swept())) is None
    assert critical_batch(make_table(swept(target_accuracy=0.9, optimizer=["adam", "sgd"]))) is None
