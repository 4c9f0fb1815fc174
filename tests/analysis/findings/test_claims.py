"""Which comparisons the answer of a sweep makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmls_ray.analysis.findings.decide import claims_of
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.until import Until
from tests.analysis.samples import results


def pairs(axes: dict[str, Any], axis: str, *, measure: str = "speed", **more: Any) -> list[tuple[Any, Any]]:
    swept = results(axes, more.pop("rate", lambda values, repeat: 100.0), **more)
    varied = [name for name, values in axes.items() if isinstance(values, list)]
    claims = claims_of(make_table(swept, varied), varied)
    return [
        (claim.pair.trial.factors[axis], claim.pair.base.factors[axis])
        for claim in claims
        if claim.pair.field == axis and claim.measure.name == measure
    ]


@pytest.mark.parametrize(
    ("axes", "axis", "expected"),
    [
        # neighbours and ends of numbers
        ({"batch_per_rank": [16, 32, 64]}, "batch_per_rank", [(32, 16), (64, 32), (64, 16)]),
        ({"batch_per_rank": [16, 32]}, "batch_per_rank", [(32, 16)]),
        # each choice with the default, and each world size with the smallest
        (
            {"batch_per_rank": 16, "optimizer": ["adamw", "sgd", "adam"]},
            "optimizer",
            [("adamw", "adam"), ("sgd", "adam")],
        ),
        ({"batch_per_rank": 16, "world_size": [4, 1, 2]}, "world_size", [(2, 1), (4, 1)]),
        # trials that differ in one axis alone
        ({"batch_per_rank": [16, 32], "optimizer": ["adam", "sgd"]}, "batch_per_rank", [(32, 16)] * 2),
        ({"batch_per_rank": [16, 32], "optimizer": ["adam", "sgd"]}, "optimizer", [("sgd", "adam")] * 2),
    ],
)
def test_the_pairs_of_an_axis(axes: dict[str, Any], axis: str, expected: list[tuple[Any, Any]]) -> None:
    for measure in ("speed", "test_accuracy"):
        assert sorted(pairs(axes, axis, measure=measure)) == sorted(expected)


def test_a_trial_without_an_answer_is_compared_with_none() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float | None:
        return None if values["batch_per_rank"] == 32 else 100.0

    assert pairs({"batch_per_rank": [16, 32, 64]}, "batch_per_rank", rate=rate) == [(64, 16)]


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
