"""Whether a sweep goes on, and what it says of that."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dmls_ray.analysis.summary.repeats import Look, look_at, undecided_of
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.until import Until
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import results


def noisy(values: dict[str, Any], repeat: int) -> float:
    return 1000.0 * (1 + 0.2 * ((repeat * values["batch_per_rank"]) % 3))


def clear(values: dict[str, Any], repeat: int) -> float:
    return values["batch_per_rank"] * (100.0 + repeat)


def look(rate: Any, until: Until, repeats: int = 3) -> Look:
    swept = results({"batch_per_rank": [16, 17]}, rate, repeats=repeats)
    swept.until = until
    found = look_at(make_table(swept, ["batch_per_rank"]), ["batch_per_rank"])
    assert found is not None
    return found


def test_a_sweep_whose_number_of_repeats_was_given_is_not_looked_at() -> None:
    swept = results({"batch_per_rank": [16, 17]}, clear)
    swept.until = None
    assert look_at(make_table(swept), ["batch_per_rank"]) is None


def test_a_sweep_ends_when_its_comparisons_are_decided() -> None:
    found = look(clear, Until())
    assert not found.goes_on
    assert found.result == (
        "3 repeats: both comparisons of the answer are beyond chance, or known to within 5% (0.05 of accuracy); their "
        "intervals hold for all pairs together."
    )


def test_a_sweep_goes_on_where_a_comparison_is_decided_and_hardly_says_by_how_much() -> None:
    def doubled(values: dict[str, Any], repeat: int) -> float:
        return 100.0 * (2.1 * 1.5 ** (repeat % 2 * 2 - 1) if values["batch_per_rank"] == 17 else 1.0)

    found = look(doubled, Until(budget=None), repeats=8)
    (claim,) = found.rough
    assert not found.open
    assert 1 < (claim.contrast.low or 0) < 1.45
    assert found.goes_on
    assert found.progress.startswith(
        "After 8 repeats, 1 of 2 comparisons is known only roughly (batch_per_rank 17 against 16: speed 2.1x ["
    )
    assert not look(doubled, Until(max_repeats=8, budget=None), repeats=8).goes_on, "there may be no more repeats"


def test_a_sweep_goes_on_while_a_comparison_is_open() -> None:
    found = look(noisy, Until())
    assert found.goes_on
    assert found.progress.startswith("After 3 repeats, 1 of 2 comparisons is open (batch_per_rank 17 against 16: spe")
    assert found.progress.endswith("; 2 more repeats follow, about 7 s.")
    assert found.undecided.endswith("; --repeats auto goes on")
    assert found.result == ""


def test_a_sweep_that_may_have_no_more_repeats_says_what_would_decide() -> None:
    found = look(noisy, Until(max_repeats=5, budget=None), repeats=5)
    assert not found.goes_on
    assert found.undecided.startswith("1 of 2 comparisons after 5 repeats, the most that --max-repeats 5 allows: batch")
    assert found.end == f"Undecided: {found.undecided}."
    wanted = found.open[0].repeats_wanted(found.stage.until)
    assert found.undecided.endswith(f"]; about {wanted} repeats would decide: --max-repeats {wanted}")


@pytest.mark.parametrize(("speed", "power"), [(1.0, 2.0), (0.002, 1.0)])
def test_more_than_100_repeats_and_those_that_take_longer_than_a_day_are_not_advised(
    speed: float, power: float
) -> None:
    until = Until(max_repeats=5, budget=None)
    found = look(lambda values, repeat: speed * noisy(values, repeat) ** power, until, repeats=5)
    assert found.undecided.endswith("]; no realistic number of repeats decides this on this machine")


def test_as_many_repeats_as_are_advised_decide_where_the_noise_stays_as_it_is() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return 1000.0 * (1.14 ** (-1) ** repeat if values["batch_per_rank"] == 17 else 1.0)

    until = Until(max_repeats=100, budget=None)
    wanted = look(rate, until, repeats=8).open[0].repeats_wanted(until)
    assert wanted is not None
    assert look(rate, until, repeats=wanted // 4 * 2).open
    assert not look(rate, until, repeats=wanted // 2 * 2 + 2).open


def test_of_several_comparisons_those_that_no_number_of_repeats_decides_are_counted_apart() -> None:
    def shaken(values: dict[str, Any], repeat: int) -> float:
        return 100.0 * (1.0 + {16: 0.0, 17: 0.05, 18: 0.6}[values["batch_per_rank"]] * (-1) ** repeat)

    swept = results({"batch_per_rank": [16, 17, 18]}, shaken, repeats=9)
    swept.until = None
    text = undecided_of(make_table(swept, ["batch_per_rank"]), ["batch_per_rank"])
    assert re.search(
        r"; about \d\d repeats would decide 1 of them: --repeats \d\d; no realistic number of repeats ", text
    )
    assert text.endswith("no realistic number of repeats decides the others on this machine")


def test_a_sweep_that_may_take_no_more_time_says_what_would_decide() -> None:
    found = look(lambda values, repeat: noisy(values, repeat) ** 0.5, Until(budget=20.0))
    assert not found.goes_on
    assert found.undecided.startswith("1 of 2 comparisons after 3 repeats, as many as --budget 20 has time for: batch")
    assert " repeats would decide: --budget " in found.undecided


def test_a_sweep_without_comparisons_says_nothing() -> None:
    found = look(lambda values, repeat: None if values["batch_per_rank"] == 17 else 100.0, Until())
    assert not found.goes_on
    assert found.result == ""
    assert found.undecided == ""


def undecided(rate: Any, repeats: int) -> str:
    swept = results({"batch_per_rank": [16, 17]}, rate, repeats=repeats)
    swept.until = None
    return undecided_of(make_table(swept, ["batch_per_rank"]), ["batch_per_rank"])


def test_a_trial_that_fails_after_its_first_run_keeps_no_sweep_going() -> None:
    swept = results({"batch_per_rank": [16, 17]}, clear, repeats=5)
    for record in swept.records:
        if record.config["batch_per_rank"] == 17 and record.repeat:
            record.outcome = Outcome.ERROR
    swept.until = Until(budget=None)
    found = look_at(make_table(swept, ["batch_per_rank"]), ["batch_per_rank"])
    assert found is not None
    assert found.open
    assert not found.goes_on
    assert "of 2 comparisons after 5 repeats, of which too few runs ended ok: " in found.undecided


def test_a_given_number_of_repeats_leaves_undecided_what_more_of_them_would_decide() -> None:
    assert undecided(clear, 3) == ""
    assert re.fullmatch(
        r"1 of 2 comparisons: batch_per_rank 17 against 16: speed \S+x \[.*\]; about \d+ repeats would decide: "
        r"--repeats \d+",
        undecided(noisy, 5),
    )
    assert undecided(clear, 2) == "2 of 2 comparisons: below 3 repeats there is no interval; --repeats auto decides"
