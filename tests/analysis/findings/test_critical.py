from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dmls_ray.analysis.figures.learning import critical_batch_chart
from dmls_ray.analysis.findings.critical import CriticalBatch, answer_on_critical_batch, critical_batch
from dmls_ray.analysis.findings.question import answer_on_axis
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.outcome import Outcome
from tests.analysis.figures.reading import names, panels, points
from tests.analysis.samples import results

BATCHES = [8, 16, 32, 64, 128, 256]
RATES = [0.001, 0.002, 0.004]


def runs(
    critical: float, fewest: float = 50.0, noise: float = 0.0, repeats: int = 6, best: float = 0.002, seed: int = 3
) -> Results:
    """Runs whose steps to the target follow the curve at the best learning rate, and 1.5 times it at others."""
    random = np.random.default_rng(seed)
    grid = {"global_batch": BATCHES, "lr": RATES, "target_accuracy": 0.9}
    swept = results(grid, lambda values, repeat: 1000.0, repeats=repeats)
    for record in swept.records:
        batch = record.config["batch_per_rank"]
        worse = 1.0 if record.config["lr"] == best else 1.5
        steps = round(fewest * (1 + critical / batch) * worse * float(random.lognormal(0, noise)))
        record.metrics |= {"target_steps": steps, "target_s": steps * 0.001 * (1 + batch / 100)}
    return swept


def found_in(swept: Results) -> CriticalBatch:
    found = critical_batch(make_table(swept))
    assert found is not None
    return found


def critical_in(swept: Results) -> Interval | None:
    curve = found_in(swept).curve
    return None if curve is None else curve.critical


def test_the_critical_batch_of_the_curve_is_found_again() -> None:
    found = found_in(runs(critical=60))
    assert found.curve is not None
    assert found.curve.critical.centre == pytest.approx(60, rel=0.02)
    assert found.curve.fewest_steps == pytest.approx(50, rel=0.02)
    assert found.curve.steps(60) == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize("repeats", [4, 8])
def test_of_noisy_sweeps_the_interval_holds_the_true_one_in_about_95_and_at_most_5_are_refuted(repeats: int) -> None:
    found = [critical_in(runs(critical=60, noise=0.1, repeats=repeats, seed=seed)) for seed in range(60)]
    intervals = [critical.ends for critical in found if critical is not None]
    assert len(intervals) >= 54
    assert sum(low <= 60 <= high for low, high in intervals) >= 0.88 * len(intervals)


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_steps_that_are_on_no_such_curve_have_no_critical_batch(noise: float) -> None:
    random = np.random.default_rng(4)
    swept = runs(critical=60, repeats=12)
    for record in swept.records:
        steps = 2000 / record.config["batch_per_rank"] if record.config["batch_per_rank"] < 100 else 200
        record.metrics["target_steps"] = round(steps * float(random.lognormal(0, noise)))
    found = found_in(swept)
    assert found.curve is None
    answer = answer_on_critical_batch(found)
    assert (answer.headline, next(iter(answer.caveats))) == ("critical_unknown", "misfit")


def test_runs_that_are_tested_once_per_epoch_have_the_same_critical_batch() -> None:
    found = []
    for seed in range(60):
        swept = runs(critical=60, fewest=30, noise=0.1, repeats=8, seed=seed)
        for record in swept.records:
            per_epoch = 1024 // record.config["batch_per_rank"]  # at batch 8 the target is 2 tests away
            tests = math.ceil(record.metrics["target_steps"] / per_epoch)
            record.metrics |= {"steps": 2 * per_epoch, "target_steps": tests * per_epoch}
        found.append(critical_in(swept))
    known = [critical for critical in found if critical is not None]  # others are refuted by chance
    assert len(known) >= 54
    assert np.median([critical.centre for critical in known]) == pytest.approx(60, rel=0.06)
    # By the steps to the later test it would be 76, and held in 41.
    assert sum(critical.ends[0] <= 60 <= critical.ends[1] for critical in known) >= 51


@pytest.mark.parametrize(
    ("best", "repeats", "caveats"),
    [
        (0.002, 6, set()),
        (0.002, 3, {"tuned_by_reported"}),  # the same runs choose and are reported
        (0.004, 6, {"at_edge"}),
    ],
)
def test_each_batch_is_judged_at_its_best_learning_rate_which_other_runs_chose(
    best: float, repeats: int, caveats: set[str]
) -> None:
    found = found_in(runs(critical=60, best=best, repeats=repeats))
    assert {point.trial.records[0].config["lr"] for point in found.points} == {best}
    assert {len(point.runs) for point in found.points} == {3 if repeats == 3 else repeats // 2}
    answer = answer_on_critical_batch(found)
    assert answer.caveats.keys() == caveats
    assert answer.caveats.get("at_edge", {"batches": BATCHES})["batches"] == BATCHES


@pytest.mark.parametrize(
    ("outcome", "is_worse"),
    [
        (Outcome.OK, True),
        (Outcome.DIVERGED, True),
        (Outcome.OOM, True),
        (Outcome.TIMEOUT, True),
        (Outcome.KILLED, False),  # its process died, which says nothing of its learning rate
    ],
)
def test_a_learning_rate_with_which_a_run_did_not_get_there_is_worse_than_any(outcome: Outcome, is_worse: bool) -> None:
    swept = runs(critical=60)
    for record in swept.records:
        if record.config["lr"] == 0.002 and record.repeat == 0:
            record.outcome = outcome
            del record.metrics["target_steps"], record.metrics["target_s"]
    found = found_in(swept)
    assert (0.002 not in {point.trial.records[0].config["lr"] for point in found.points}) == is_worse
    assert is_worse or all(point.steps for point in found.points)


@pytest.mark.parametrize("missed", [{5}, {0, 1, 2, 3, 4, 5}])
def test_a_batch_that_not_all_runs_take_to_the_target_is_a_cross_and_in_no_curve(missed: set[int]) -> None:
    swept = runs(critical=60)
    for record in swept.records:
        if record.config["batch_per_rank"] == 256 and record.repeat in missed:
            del record.metrics["target_steps"], record.metrics["target_s"]
    found = found_in(swept)
    last = found.points[-1]
    assert (last.steps, last.seconds) == (None, None)
    assert len(last.steps_by_repeat) == 3 - len(missed - {0, 1, 2})
    assert found.curve is not None
    assert found.curve.critical.centre == pytest.approx(60, rel=0.02)
    for panel in panels(critical_batch_chart(make_table(swept)), 2):
        assert points(panel, "not reached by all runs") == {256.0: None}
        assert 256.0 not in points(panel, "best learning rate")
    assert answer_on_critical_batch(found).caveats["not_reached"]["batches"] == [256]


def test_steps_that_are_few_tests_away_are_named() -> None:
    swept = runs(critical=60)
    for record in swept.records:
        batch = record.config["batch_per_rank"]
        record.metrics["steps"] = 2 * (1000 if batch == 8 else 1000 // batch)  # batch 8 reaches it in 425 steps
        record.config["target_tests"] = 2
    found = found_in(swept)
    assert [point.tests_apart for point in found.points[:2]] == [500, 31]
    assert answer_on_critical_batch(found).caveats["coarse"]["batches"] == [8]


def test_the_gradient_noise_scale_of_the_runs_is_in_the_answer_and_a_line_of_the_figure() -> None:
    swept = runs(critical=60)
    for record in swept.records:
        record.metrics["gradient_noise_scale"] = 70.0
    (by_noise,) = answer_on_critical_batch(found_in(swept)).comparisons[-1]
    assert by_noise.contrast.centre == pytest.approx(70)
    steps, _ = panels(critical_batch_chart(make_table(swept)), 2)
    assert list(points(steps, "gradient noise scale")) == [70.0]


@pytest.mark.parametrize(
    ("critical", "headline"), [(60, "critical"), (1e7, "critical_above"), (0.001, "critical_below")]
)
def test_the_headline_says_where_larger_batches_stop_to_help(critical: float, headline: str) -> None:
    answer = answer_on_axis(make_table(runs(critical)), "global_batch")
    assert answer.headline == headline
    first, *_ = answer.comparisons
    assert [effect.measure.metric for effect in first] == ["steps to target", "s to target"]


def test_fewer_than_four_batches_have_no_curve() -> None:
    swept = runs(critical=60)
    swept = swept.of([record for record in swept.records if record.config["batch_per_rank"] < 64])
    found = found_in(swept)
    assert found.curve is None
    assert "few_batches" in answer_on_critical_batch(found).caveats


def test_the_figure_has_perfect_scaling_and_the_curve() -> None:
    found = critical_batch_chart(make_table(runs(critical=60)))
    steps, seconds = panels(found, 2)
    batches = len(points(steps, "best learning rate"))
    said = f"The band is the 95% interval of the critical batch, by a curve through {batches} batches."
    assert found.notes[-1] == said
    laws = ["perfect scaling", "S_min (1 + B_crit / B)", "critical batch"]
    assert names(steps) == ["critical batch, 95%", "best learning rate", *laws]
    assert points(steps, "perfect scaling")[256.0] == pytest.approx(50 * (1 + 60 / 8) * 8 / 256, rel=0.02)
    assert names(seconds) == ["best learning rate"]


def test_a_sweep_without_a_target_or_over_something_else_has_no_critical_batch() -> None:
    def swept(**axes: Any) -> Results:
        return results({"batch_per_rank": [16, 32], **axes}, lambda values, repeat: 1.0)

    assert critical_batch(make_table(swept())) is None
    assert critical_batch(make_table(swept(target_accuracy=0.9, optimizer=["adam", "sgd"]))) is None
