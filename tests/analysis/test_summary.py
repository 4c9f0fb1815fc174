from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.report.render import render_report
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.words import claim_text
from tests.analysis.samples import in_sessions, results

GRID = {"batch_per_rank": [16, 32, 64], "world_size": 1}


def runs() -> Results:
    return results(GRID, lambda values, repeat: 100.0)


def session(**changes: Any) -> dict[str, Any]:
    trials = dict.fromkeys(record.trial_id for record in runs().records)
    return {"axes": {"batch_per_rank": [16, 32, 64]}, "repeats": 3, "trials": list(trials), **changes}


def reading(count: int, *sessions: dict[str, Any]) -> SweepSummary:
    """The first runs of a sweep of nine."""
    return SweepSummary(Results("somewhere", runs().records[:count]), SweepQuestion.of(sessions))


def test_a_sweep_that_was_stopped_says_how_many_runs_are_missing_and_what_runs_them() -> None:
    stopped = reading(2, session())
    warning = "Unfinished: 7 of the 9 requested runs; the same command without --fresh runs them."
    assert stopped.table.notes[-1] == warning
    assert f'<p class="warning">{warning}</p>' in render_report(stopped, [])
    assert reading(8, session()).unfinished.startswith("Unfinished: 1 of the 9 requested runs")


def test_runs_of_an_earlier_call_do_not_stand_for_those_of_the_last() -> None:
    first = runs().records[0].trial_id
    others = [trial for trial in session()["trials"] if trial != first]
    records = [record for record in runs().records if record.trial_id == first]
    asked = SweepSummary(
        Results("somewhere", records), SweepQuestion.of([session(trials=[first]), session(trials=others)])
    )
    assert asked.unfinished.startswith("Unfinished: 6 of the 6 requested runs")


@pytest.mark.parametrize(
    ("count", "recorded"),
    [(9, {}), (2, {"trials": []}), (2, {"mode": "search", "metric": "test_accuracy", "trials": []})],
)
def test_a_sweep_whose_runs_have_all_ended_and_a_search_say_nothing(count: int, recorded: dict[str, Any]) -> None:
    found = reading(count, session(**recorded))
    assert found.unfinished == ""
    assert not any("asked for" in note for note in found.table.notes)


def test_the_answer_counts_what_is_undecided() -> None:
    noisy = results(GRID, lambda values, repeat: 100.0 + 20 * ((repeat * values["batch_per_rank"] // 16) % 3))
    found = SweepSummary(noisy, SweepQuestion.of([session()])).answer
    assert found.decision is not None
    assert len(found.decision.claims) == 6
    assert found.json_fields()["open"]
    assert f"5 points): {len(found.decision.open)} of 6 comparisons" in found.undecided
    assert reading(2, session()).answer.decision is None, "the sweep is not finished"


def test_an_undecided_comparison_that_no_row_has_is_named() -> None:
    axes = {"batch_per_rank": [16, 32], "world_size": [1, 2]}

    def rate(values: dict[str, Any], repeat: int) -> float:
        noise = 0.5 if (values["world_size"], values["batch_per_rank"]) == (2, 16) else 0.001
        return 100.0 * values["world_size"] ** 0.5 * (1 + noise * (repeat % 2))

    question = SweepQuestion.of([{"axes": axes, "repeats": 4, "axis": "batch_per_rank"}])
    found = SweepSummary(results(axes, rate, repeats=4), question).answer
    assert found.decision is not None
    names = {claim_text(claim) for claim in found.decision.open}
    hidden = {name for name in names if name.startswith("ranks 2 vs 1 (batch_per_rank 16)")}
    assert hidden, "their mean alone has a row"
    for name in names:
        assert (name in found.undecided) == (name in hidden)


def test_a_line_below_the_table_says_what_its_intervals_are() -> None:
    noisy = results(GRID, lambda values, repeat: 100.0 + repeat * values["batch_per_rank"])
    lines = SweepSummary(noisy, SweepQuestion.of([session()])).answer.lines(100)
    (place,) = [place for place, line in enumerate(lines) if line.startswith("Intervals [95%] hold")]
    assert lines[place - 1].startswith("batch_per_rank"), "right below it"
    once = results(GRID, lambda values, repeat: 100.0 + values["batch_per_rank"], repeats=1)
    assert SweepSummary(once, SweepQuestion.of([session()])).answer.intervals == ""


def test_the_repeats_of_a_row_are_those_that_both_sides_have_in_one_session() -> None:
    noisy = results(GRID, lambda values, repeat: 100.0 + repeat * values["batch_per_rank"], repeats=5)
    continued = in_sessions(noisy, lambda values, repeat: f"{values['batch_per_rank'] == 64 and repeat < 2}")
    lines = SweepSummary(continued, SweepQuestion.of([session(repeats=5)])).answer.lines(100)
    rows = {line[:23]: line.split()[-1] for line in lines if line.startswith("batch_per_rank")}
    assert rows["batch_per_rank 64 vs 16"] == "3"
    assert rows["batch_per_rank 32 vs 16"] == "5"


def test_where_a_verdict_follows_it_alone_says_how_many_repeats_decide() -> None:
    noisy = results(GRID, lambda values, repeat: 100.0 + 20 * ((repeat * values["batch_per_rank"] // 16) % 3))
    question = SweepQuestion.of([session()])
    assert "repeats" in SweepSummary(noisy, question).answer.undecided
    assert SweepSummary(noisy, question, has_verdict=True).answer.undecided == ""
