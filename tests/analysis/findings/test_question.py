"""Which comparisons a sweep makes, whether it has enough repeats, and how many may follow or would decide them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmls_ray.analysis.findings.question import Decision, claims_of, decide
from dmls_ray.analysis.findings.sweep_trials import Stage
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.axis import all_groups_along_axis, group_by_other_factors
from dmls_ray.analysis.trials.common_metrics import speed_against
from dmls_ray.analysis.words import end_text, progress_text
from dmls_ray.analysis.words_on_pairs import pair_label, place_text
from dmls_ray.config.options import Until
from dmls_ray.records.outcome import Outcome
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
    assert (pair_label(speed.pair), place_text(speed.pair)) == ("batch_per_rank 17 vs 16", "")
    assert not speed.is_decided
    assert 8 < (speed.repeats_wanted() or 0) < 100
    assert replace(speed, until=Until(within=0.9)).is_decided
    assert accuracy.is_decided
    assert accuracy.measure.name == "test_accuracy"


AXIS = ["batch_per_rank"]


def noisy(values: dict[str, Any], repeat: int) -> float:
    return 1000.0 * (1 + 0.2 * ((repeat * values["batch_per_rank"]) % 3))


def clear(values: dict[str, Any], repeat: int) -> float:
    return values["batch_per_rank"] * (100.0 + repeat)


def decision(rate: Any, until: Until | None, repeats: int = 3, batches: tuple[int, ...] = (16, 17)) -> Decision:
    swept = results({"batch_per_rank": list(batches)}, rate, repeats=repeats)
    swept.until = until
    return decide(make_table(swept, AXIS), AXIS)


@pytest.mark.parametrize(
    ("rate", "until", "repeats", "open_by", "wanted", "goes_on"),
    [
        (noisy, None, 5, ["speed"], 1, False),  # the number of repeats was given
        (clear, None, 3, [], 0, False),
        (clear, None, 2, ["speed", "test_accuracy"], 0, False),  # below three repeats there is no interval
        (clear, Until(), 3, [], 0, False),
        (noisy, Until(), 3, ["speed"], 1, True),
    ],
)
def test_a_sweep_goes_on_while_a_comparison_is_open(
    rate: Any, until: Until | None, repeats: int, open_by: list[str], wanted: int, goes_on: bool
) -> None:
    found = decision(rate, until, repeats)
    assert sorted(claim.measure.name for claim in found.open) == open_by
    assert (len(found.repeats_wanted), found.goes_on) == (wanted, goes_on)
    assert found.stage is None or found.stage.next_blocks == 5
    if until is not None and not goes_on:
        assert end_text(found) == "Undecided: none of 2 comparisons after 3 repeats."


def test_a_sweep_goes_on_where_a_comparison_is_decided_and_hardly_says_by_how_much() -> None:
    def doubled(values: dict[str, Any], repeat: int) -> float:
        return 100.0 * (2.1 * 1.5 ** (repeat % 2 * 2 - 1) if values["batch_per_rank"] == 17 else 1.0)

    found = decision(doubled, Until(budget=None), repeats=8)
    (claim,) = found.rough
    assert not found.open
    assert 1 < (claim.contrast.low or 0) < 1.45
    assert found.goes_on
    assert progress_text(found).startswith(
        "After 8 repeats, known only roughly: 1 of 2 comparisons (batch_per_rank 17 "
    )
    assert not decision(doubled, Until(max_repeats=8, budget=None), repeats=8).goes_on, "there may be no more repeats"


def test_a_sweep_that_may_have_no_more_repeats_ends_with_how_many_would_decide() -> None:
    found = decision(noisy, Until(max_repeats=5, budget=None), repeats=5)
    assert not found.goes_on
    assert found.realistic == [found.open[0].repeats_wanted()]
    assert end_text(found).endswith(f"would decide 1 of them: --max-repeats {found.realistic[-1]}.")


def test_more_than_100_repeats_are_not_advised() -> None:
    found = decision(lambda values, repeat: noisy(values, repeat) ** 2, Until(max_repeats=5, budget=None), repeats=5)
    assert (found.realistic, len(found.repeats_wanted)) == ([], 1)
    assert "no realistic number of repeats decides 1 " in end_text(found)


def test_as_many_repeats_as_are_advised_decide_where_the_noise_stays_as_it_is() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return 1000.0 * (1.14 ** (-1) ** repeat if values["batch_per_rank"] == 17 else 1.0)

    until = Until(max_repeats=100, budget=None)
    wanted = decision(rate, until, repeats=8).open[0].repeats_wanted()
    assert wanted is not None
    assert decision(rate, until, repeats=wanted // 4 * 2).open
    assert not decision(rate, until, repeats=wanted // 2 * 2 + 2).open


def test_a_sweep_that_may_take_no_more_time_ends_with_the_budget_that_would_decide() -> None:
    found = decision(lambda values, repeat: noisy(values, repeat) ** 0.5, Until(budget=20.0))
    assert not found.goes_on
    assert " would decide 1 of them: --max-repeats 18 --budget 35m" in end_text(found)


def test_a_sweep_without_comparisons_says_nothing() -> None:
    found = decision(lambda values, repeat: None if values["batch_per_rank"] == 17 else 100.0, Until())
    assert not found.goes_on
    assert not found.claims
    assert end_text(found) == ""


def test_a_trial_that_fails_after_its_first_run_keeps_no_sweep_going() -> None:
    swept = results({"batch_per_rank": [16, 17]}, clear, repeats=5)
    for record in swept.records:
        if record.config["batch_per_rank"] == 17 and record.repeat:
            record.outcome = Outcome.ERROR
    swept.until = Until(budget=None)
    found = decide(make_table(swept, AXIS), AXIS)
    assert found.open
    assert not found.goes_on


TWO_BATCHES = {"batch_per_rank": [16, 32]}
LONG = Until(budget=None)


def stage(repeats: int, until: Until = LONG, rate: float = 1000.0) -> Stage:
    """Of two trials; a run takes 2000 / rate seconds."""
    return Stage(results(TWO_BATCHES, lambda values, repeat: rate, repeats=repeats).records, until)


def test_a_block_counts_when_every_trial_has_ended_in_it() -> None:
    assert stage(4).blocks == 4
    records = results(TWO_BATCHES, lambda values, repeat: 100.0, repeats=4).records
    assert Stage(records[:-1], LONG).blocks == 3
    assert Stage([], LONG).blocks == 0
    records[-1].outcome = Outcome.KILLED
    assert Stage(records, LONG).blocks == 4, "a run that was killed is not run again in this call"


def test_a_trial_of_which_no_run_ended_ok_takes_no_part_in_further_blocks() -> None:
    records = results(TWO_BATCHES, lambda values, repeat: None if values["batch_per_rank"] == 32 else 100.0).records
    found = Stage(records[:-1], LONG)
    assert found.blocks == 3
    assert found.blocks_of.keys() == {record.trial_id for record in records if record.config["batch_per_rank"] == 16}


def test_looks_come_at_growing_numbers_of_blocks_up_to_the_most() -> None:
    assert [stage(blocks).next_blocks for blocks in (1, 3, 5, 8, 9, 12, 19)] == [3, 5, 8, 12, 12, 19, 30]
    assert stage(3, Until(budget=None, max_repeats=4)).next_blocks == 4
    assert not stage(29).is_last
    assert stage(30).is_last
    assert stage(40).most == 40


def test_no_block_follows_that_would_not_end_within_the_budget() -> None:
    """A run takes 2 s, and a block 4 s."""
    assert stage(3, Until(budget=9)).next_blocks == 5
    assert stage(3, Until(budget=7)).next_blocks == 4
    assert stage(3, Until(budget=3.9)).is_last
    assert stage(4, Until(budget=7.9)).is_last, "4 s of it are spent"
    assert stage(3, Until(budget=60), rate=1.0).is_last, "runs of half an hour"


def test_intervals_are_wider_where_blocks_were_added_until_all_was_decided() -> None:
    def width(swept: Results, until: Until | None) -> float:
        swept.until = until
        first, last = make_table(swept).rows
        found = speed_against(last, first)
        assert found is not None
        assert found.half_width is not None
        return found.half_width

    swept = results(TWO_BATCHES, lambda values, repeat: 100 + (repeat * values["batch_per_rank"]) % 7, repeats=5)
    given, stopped, last = (width(swept, until) for until in (None, LONG, Until(budget=0)))
    assert given < last < stopped
    swept = results(TWO_BATCHES, lambda values, repeat: 100 + (repeat * values["batch_per_rank"]) % 7)
    given, stopped, last = (width(swept, until) for until in (None, LONG, Until(budget=0)))
    assert given == last < stopped, "three blocks of a sweep that has no time for more were not looked at twice"


def test_what_counts_with_one_value_alone_follows_from_the_axis() -> None:
    variants = ({"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.9})
    table = make_table(results({"batch_per_rank": 16}, lambda values, repeat: 100.0, variants=variants))
    assert len(all_groups_along_axis(table.rows, "optimizer", table.fixed_batch_field)) == 1
    assert len(group_by_other_factors(table.rows, {"optimizer"})) == 2
