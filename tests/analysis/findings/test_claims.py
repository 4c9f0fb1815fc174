"""Which comparisons the answer of a sweep makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dmls_ray.analysis.findings.decide import claims_of
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.until import Until
from tests.analysis.samples import own_results, results


def pairs(axes: dict[str, Any], axis: str, *, measure: str = "speed", **more: Any) -> list[tuple[Any, Any]]:
    swept = results(axes, more.pop("rate", lambda values, repeat: 100.0), **more)
    varied = [name for name, values in axes.items() if isinstance(values, list)]
    claims = claims_of(make_table(swept, varied), varied)
    return [
        (claim.pair.trial.factors[axis], claim.pair.base.factors[axis])
        for claim in claims
        if claim.pair.field == axis and claim.measure.name == measure
    ]


def test_neighbours_and_ends_of_an_axis_of_numbers_are_compared() -> None:
    assert pairs({"batch_per_rank": [16, 32, 64]}, "batch_per_rank") == [(32, 16), (64, 32), (64, 16)]
    assert pairs({"batch_per_rank": [16, 32]}, "batch_per_rank", measure="test_accuracy") == [(32, 16)]


def test_each_choice_is_compared_with_the_default_and_each_world_size_with_the_smallest() -> None:
    found = pairs({"batch_per_rank": 16, "optimizer": ["adamw", "sgd", "adam"]}, "optimizer")
    assert sorted(found) == [("adamw", "adam"), ("sgd", "adam")]
    found = pairs({"batch_per_rank": 16, "world_size": [4, 1, 2]}, "world_size")
    assert found == [(2, 1), (4, 1)]


def test_trials_are_compared_with_those_that_differ_in_one_axis_alone() -> None:
    axes = {"batch_per_rank": [16, 32], "optimizer": ["adam", "sgd"]}
    assert pairs(axes, "batch_per_rank") == [(32, 16)] * 2
    assert pairs(axes, "optimizer") == [("sgd", "adam")] * 2


def test_a_trial_without_an_answer_is_compared_with_none() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float | None:
        return None if values["batch_per_rank"] == 32 else 100.0

    assert pairs({"batch_per_rank": [16, 32, 64]}, "batch_per_rank", rate=rate) == [(64, 16)]


def test_each_change_is_compared_with_the_trial_without_any() -> None:
    variants = ({}, {"dropout": 0.3}, {"l1": 0.1})
    swept = results({"batch_per_rank": 16}, lambda values, repeat: 100.0, variants=variants)
    claims = claims_of(make_table(swept), [], ["dropout", "l1"])
    assert {
        (claim.pair.field, claim.pair.base.factors["dropout"], claim.pair.base.factors["l1"]) for claim in claims
    } == {
        ("dropout", None, 0.0),
        ("l1", None, 0.0),
    }


def test_the_measures_of_a_function_are_compared_by_ratios_where_they_are_positive() -> None:
    swept = own_results(
        {"width": [8, 16]},
        lambda values, repeat: (1.0, {"bits": (2.0 + repeat) * values["width"], "shift": repeat - 1.0}),
    )
    claims = claims_of(make_table(swept, ["width"]), ["width"])
    assert [(claim.measure.name, claim.contrast.centre) for claim in claims] == [
        ("total_s", 1.0),
        ("bits", 2.0),
        ("shift", 0.0),
    ]


def test_a_claim_names_its_trials_and_says_how_many_repeats_would_decide_it() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return 100.0 * (1 + 0.1 * ((repeat * values["batch_per_rank"]) % 3))

    swept = results({"batch_per_rank": [16, 17], "world_size": 2}, rate, repeats=8)
    (speed, accuracy) = claims_of(make_table(swept, ["batch_per_rank", "world_size"]), ["batch_per_rank"])
    assert (speed.pair.label, speed.pair.where) == ("batch_per_rank 17 vs 16", "")
    assert not speed.is_decided
    assert 8 < (speed.repeats_wanted() or 0) < 100
    assert replace(speed, until=Until(within=0.9)).is_decided
    assert accuracy.is_decided
    assert accuracy.measure.name == "test_accuracy"
