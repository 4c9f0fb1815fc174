"""What a search may propose."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_ray.config.axes import Range, checked_axes, of_ray_tune
from dmls_ray.config.search_space import SearchSpace, make_search_space
from dmls_ray.execution.next_runs import proposed_before
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.workload import ClassificationWorkload

AXES = {
    "lr": Range(1e-4, 1e-1, log=True), "epochs": Range(1, 9), "batch_per_rank": [16, 32], "optimizer": ["adam", "sgd"],
    "momentum": [0.0, 0.9], "seed": 3,
}  # fmt: skip


def make_space(axes: dict[str, Any]) -> SearchSpace:
    schema = ClassificationWorkload().schema()
    return make_search_space(checked_axes(axes, schema), schema)


@given(st.integers(0, 2**31 - 1))
def test_every_point_lies_in_the_space_and_is_a_run(seed: int) -> None:
    space = make_space(AXES)
    for point in space.draw(5, seed):
        assert 1e-4 <= point["lr"] <= 1e-1
        assert point["lr"] == float(f"{point['lr']:.4g}"), "a table that names it names all of it"
        assert point["epochs"] in range(1, 10)
        assert point["batch_per_rank"] in (16, 32)
        assert space.run_of(point).seeded().seed == 3


def test_more_points_begin_with_the_same_ones() -> None:
    space = make_space(AXES)
    assert space.draw(9, seed=1)[:4] == space.draw(4, seed=1) != space.draw(4, seed=2)


def test_a_logarithmic_range_has_as_many_small_numbers_as_large_ones() -> None:
    drawn = [point["lr"] for point in make_space(AXES).draw(2000, seed=0)]
    below = sum(value < math.sqrt(1e-5) for value in drawn)
    assert 900 < below < 1100


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"batch_per_rank": 16}, "nothing to search"),
        ({"batch_per_rank": 16, "optimizer": Range(0, 1)}, "optimizer=0 is unknown; choose from adam"),
        ({"batch_per_rank": 16, "learning_rate": Range(0, 1)}, "learning_rate is no field"),
        ({"batch_per_rank": 16, "lr": [0.1, "fast"]}, "lr=fast: expected float"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(axes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_space(axes)


@pytest.mark.parametrize(
    ("ends", "message"),
    [((1, 1), "is not possible"), ((2, 1), "is not possible"), ((0, math.inf), "is not possible"),
     ((math.nan, 1), "is not possible"), ((0, 1, True), "more than 0")],
)  # fmt: skip
def test_an_empty_range_and_a_logarithmic_one_from_zero_are_refused(ends: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Range(*ends)


def test_only_runs_of_this_very_space_were_proposed_from_it() -> None:
    space = make_space(AXES)
    (point,) = space.draw(1, seed=0)
    run = space.run_of(point)

    def record(**changes: object) -> RunRecord:
        values = {"run_id": run.run_id, "trial_id": run.trial_id, "repeat": 0, "order": 0, "order_seed": 0, "seed": 3}
        return RunRecord(**{**values, "outcome": Outcome.OK, "config": dict(run.values), "proposed": point, **changes})  # type: ignore[arg-type]

    assert proposed_before(space, [record(), record(proposed={}), record(run_id="other-0")]) == [record()]
    assert proposed_before(make_space({**AXES, "seed": 4}), [record()]) == []
    assert proposed_before(make_space({**AXES, "lr": Range(1.0, 2.0)}), [record()]) == [], "it lies outside"


def test_no_more_is_asked_for_than_a_space_has() -> None:
    assert make_space({"batch_per_rank": [16, 32], "optimizer": ["adam", "sgd", "rmsprop"]}).at_most(24) == 6
    assert make_space(AXES).at_most(24) == 24


def test_what_is_drawn_from_a_narrow_range_stays_in_it() -> None:
    space = make_space({"batch_per_rank": 16, "lr": Range(0.12345, 0.12349)})
    assert all(0.12345 <= point["lr"] <= 0.12349 for point in space.draw(20, seed=0))


def test_ranges_and_choices_of_ray_tune_mean_what_they_mean_there() -> None:
    from ray import tune

    assert of_ray_tune("lr", tune.grid_search([0.1, 0.01])) == [0.1, 0.01]
    assert of_ray_tune("lr", tune.choice(["a", "b"])) == ["a", "b"]
    assert of_ray_tune("lr", tune.uniform(0.1, 0.2)) == Range(0.1, 0.2)
    assert of_ray_tune("lr", tune.loguniform(1e-4, 1e-1)) == Range(1e-4, 1e-1, log=True)
    assert of_ray_tune("epochs", tune.randint(1, 10)) == Range(1, 9), "the upper end is left out"
    assert of_ray_tune("lr", [0.1]) == [0.1]
    for other in (tune.randn(0, 1), tune.quniform(0, 1, 0.1), tune.sample_from(lambda spec: 1)):
        with pytest.raises(
            ConfigError, match=r"lr: .* of ray.tune has no counterpart; give a list of values, or Range"
        ):
            of_ray_tune("lr", other)
