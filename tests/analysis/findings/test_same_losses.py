"""Whether two trials train the same, by the losses of their steps."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dmls_ray.analysis.findings.same_losses import LossVerdict, compare_losses, judge_losses
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import results

LOSSES = [2.0 / step for step in range(1, 101)]


def compared(changes: dict[int, float], divided: float = 1.0) -> LossVerdict:
    """Losses that differ by these relative amounts from these steps on, against those without a change."""
    change, losses = 0.0, []
    for step, loss in enumerate(LOSSES, 1):
        change = changes.get(step, change)
        losses.append(loss * (1 + change) / divided)
    return compare_losses(losses, LOSSES, [divided] * 100, 1e-5)


@pytest.mark.parametrize(
    ("changes", "verdict", "step"),
    [
        ({}, "bit-identical", None),
        ({1: 1e-7, 50: 2e-7}, "within rounding", None),
        ({1: 9e-6}, "within rounding", None),
        ({1: 2e-5}, "different", 1),  # other samples
        ({1: 1e-7, 2: 1e-3}, "different", 2),  # another learning rate
        ({1: 1e-7, 4: 1e-2}, "different", 4),  # the last, smaller batch, or the second pass over the data
        ({1: 1e-7, 20: 9e-5, 60: 5e-4}, "within rounding", None),  # rounding grows with the steps
        ({1: 1e-7, 60: 5e-4}, "different", 60),  # but not at once
        ({1: 1e-7, 100: 1.1e-2}, "different", 100),
        ({1: 9e-6, 10: 9e-5, 20: 3e-4}, "cannot say", 20),  # grew slowly
    ],
)
def test_losses_are_the_same_up_to_rounding_and_a_jump_beyond_it_is_a_difference(
    changes: dict[int, float], verdict: str, step: int | None
) -> None:
    found = compared(changes)
    assert (found.verdict, found.step) == (verdict, step)
    if step is not None:
        assert found.losses is not None
        assert found.losses[1] == LOSSES[step - 1]


def test_a_step_whose_loss_alone_differs_says_nothing_of_the_updates_after_it() -> None:
    found = compared({11: 1e-2, 12: 0.0})
    assert (found.verdict, found.step) == ("cannot say", 11)
    assert compared({11: 1e-2, 12: 0.0, 40: 1e-2}).step == 40


def test_losses_around_0_are_compared_by_the_size_of_those_near_them_and_such_that_are_all_0_say_nothing() -> None:
    signed = [(-1) ** step / step for step in range(100)[1:]]
    ones = [1.0] * 100
    assert compare_losses([0.0, *signed], [6e-8, *signed], ones, 1e-5).verdict == "within rounding"
    assert compare_losses([1e-3, *signed], [6e-8, *signed], ones, 1e-5).verdict == "different"
    assert compare_losses([6e-8] * 100, [0.0] * 100, ones, 1e-5).verdict == "cannot say"
    after_a_large_one = [3e4, *[1.2] * 19, *[-0.27] * 80]
    assert compare_losses([*after_a_large_one[:20], *[-0.25] * 80], after_a_large_one, ones, 1e-5).step == 21
    solved = [257.0, *[1e-11] * 99]
    assert compare_losses([257.0, *[4e-11] * 99], solved, ones, 1e-5).verdict == "within rounding"


def test_losses_that_code_divides_by_its_backward_passes_are_the_same() -> None:
    assert compared({}, divided=4.0).verdict == "bit-identical"
    assert compared({3: 1e-2}, divided=4.0).step == 3


def test_rounding_of_each_step_by_chance_is_no_difference() -> None:
    chance = random.Random(0)
    losses = [loss * (1 + chance.gauss(0, 1e-7)) for loss in LOSSES]
    found = compare_losses(losses, LOSSES, [1.0] * 100, 1e-5)
    assert (found.verdict, found.steps) == ("within rounding", 100)


def test_one_step_shows_no_update_and_no_step_shows_nothing() -> None:
    for losses in ([], LOSSES[:1]):
        found = compare_losses(losses, LOSSES, [1.0] * 100, 1e-5)
        assert (found.verdict, found.steps) == ("cannot say", len(losses))


def judged(first: dict[str, Any], second: dict[str, Any]) -> LossVerdict:
    """Two trials whose runs were seen so."""
    runs = results({"optimizer": ["adam", "sgd"], "batch_per_rank": 16}, lambda values, repeat: 100.0)
    for record in runs.records:
        seen = first if record.config["optimizer"] == "adam" else second
        record.step_losses = seen.get("losses", LOSSES)
        record.step_passes = seen.get("passes", [])
        record.independent_ranks = seen.get("independent", "")
        record.outcome = seen.get("outcome", Outcome.OK)
        record.facts |= seen.get("facts", {})
        if seen.get("samples", 64) is not None:
            record.metrics["samples_per_step"] = seen.get("samples", 64)
        else:
            record.facts["samples_unknown"] = "no loader"
    base, trial = make_table(runs).rows
    return judge_losses(trial, base)


def divided_by(passes: list[int]) -> list[float]:
    """The losses of code that divides each by the number of backward passes."""
    return [loss / count for loss, count in zip(LOSSES, passes, strict=True)]


SHORT_GROUPS = [2 if step % 10 == 9 else 4 for step in range(100)]
"""Backward passes of each step, where epochs end with fewer."""
OTHER = [2 * loss for loss in LOSSES]
COARSE = [loss * 1.0005 for loss in LOSSES]
SLIGHT = [loss * (1 + 1e-7) for loss in LOSSES]
GROWN = [loss * (1 + 9e-6 * min(step, 10)) for step, loss in enumerate(LOSSES)]


@pytest.mark.parametrize(
    ("first", "second", "verdict", "step"),
    [
        ({}, {}, "bit-identical", None),
        ({}, {"losses": OTHER}, "different", 1),
        ({}, {"losses": COARSE}, "different", 1),
        ({}, {"independent": "the ranks ended apart", "losses": SLIGHT}, "within rounding", None),
        ({}, {"independent": "the ranks ended apart", "losses": GROWN}, "cannot say", None),
        ({}, {"losses": GROWN}, "within rounding", None),
        ({}, {"losses": COARSE, "facts": {"number_format": "bfloat16"}}, "within rounding", None),
        ({}, {"samples": 128}, "cannot say", None),
        ({}, {"losses": LOSSES[:3]}, "cannot say", None),
        ({}, {"passes": SHORT_GROUPS}, "bit-identical", None),
        ({}, {"passes": SHORT_GROUPS, "losses": divided_by(SHORT_GROUPS)}, "bit-identical", None),
        ({}, {"passes": SHORT_GROUPS, "losses": divided_by([4] * 100)}, "cannot say", 10),
        ({}, {"samples": 32, "facts": {"same_samples": "true"}}, "different", 1),
        ({"samples": None}, {"samples": None}, "bit-identical", None),
        ({"samples": None}, {"samples": None, "losses": OTHER}, "cannot say", 1),
        ({}, {"losses": []}, "cannot say", None),
        ({}, {"outcome": Outcome.ERROR}, "failed", None),
        ({"outcome": Outcome.ERROR}, {}, "failed", None),
        ({}, {"outcome": Outcome.SKIPPED}, "cannot say", None),
    ],
)
def test_a_verdict_needs_equally_many_samples_a_step_and_runs_that_ended_ok(
    first: dict[str, Any], second: dict[str, Any], verdict: str, step: int | None
) -> None:
    found = judged(first, second)
    assert (found.verdict, found.step) == (verdict, step)
