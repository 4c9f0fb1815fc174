"""Whether one value of a field may take the place of another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmls_ray.analysis.findings.replacement import judge_replacement
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.words_on_pairs import place_text
from dmls_ray.config.options import Until
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import in_sessions, results

NOISE = (1.001, 0.999, 1.0, 1.0005, 0.9995)
OLD, NEW = "fp32", "amp-bf16"


def table_of(speed: dict[str, float | None], spread: float = 1, repeats: int = 5, **axes: Any) -> Any:
    def rate(values: dict[str, Any], repeat: int) -> float | None:
        shift = repeat if values["precision"] == NEW else 0
        level = speed[values["precision"]]
        return level and 100 * level * (1 + spread * (NOISE[(repeat + shift) % 5] - 1))

    return make_table(results({"precision": [OLD, NEW], "batch_per_rank": 16, **axes}, rate, repeats=repeats))


@pytest.mark.parametrize(
    ("new", "spread", "word"),
    [
        (0.9, 1, "discard"),
        (0.99, 1, "keep"),  # slower, and not by more than 2%
        (1.0, 1, "keep"),
        (1.1, 1, "keep"),
        (1.0, 60, "cannot say"),
        (0.98, 3, "cannot say"),
    ],
)
def test_what_is_slower_by_more_than_two_percent_is_discarded(new: float, spread: float, word: str) -> None:
    verdict = judge_replacement(table_of({OLD: 1, NEW: new}, spread), "precision", (OLD, NEW), Until())
    assert verdict.word == word
    (effect,) = verdict.effects
    assert effect.contrast.centre == pytest.approx(new, rel=0.01 * spread)


def test_without_an_interval_nothing_is_said() -> None:
    verdict = judge_replacement(table_of({OLD: 1, NEW: 0.5}, repeats=1), "precision", (OLD, NEW), Until())
    assert (verdict.word, verdict.repeats_wanted) == ("cannot say", None)


def test_how_many_repeats_decide_it_falls_as_the_noise_does() -> None:
    noisy, less = (
        judge_replacement(table_of({OLD: 1, NEW: 1}, spread), "precision", (OLD, NEW), Until()).repeats_wanted
        for spread in (30, 20)
    )
    assert noisy is not None
    assert less is not None
    assert noisy > less > 5


def test_of_several_configurations_each_counts() -> None:
    table = table_of({OLD: 1, NEW: 0.9}, batch_per_rank=[16, 32])
    verdict = judge_replacement(table, "precision", (OLD, NEW), Until())
    assert verdict.word == "discard"
    assert [place_text(effect.pair) for effect in verdict.effects] == ["batch_per_rank 16", "batch_per_rank 32"]


def test_the_first_value_is_the_one_that_is_there() -> None:
    table = table_of({OLD: 1, NEW: 0.9})
    assert judge_replacement(table, "precision", (NEW, OLD), Until()).word == "keep"


@pytest.mark.parametrize(("speed", "word", "outcomes"), [((1, None), "discard", 1), ((None, 1), "failed", 0)])
def test_what_does_not_train_is_discarded_where_the_other_one_does(
    speed: tuple[float | None, float | None], word: str, outcomes: int
) -> None:
    table = table_of(dict(zip((OLD, NEW), speed, strict=True)))
    verdict = judge_replacement(table, "precision", (OLD, NEW), Until())
    assert (verdict.word, len(verdict.outcomes)) == (word, outcomes)


def test_what_was_not_measured_side_by_side_is_not_judged() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return (50 if values["precision"] == NEW else 100) + NOISE[repeat]

    runs = results({"precision": [OLD, NEW], "batch_per_rank": 16}, rate, repeats=5)
    table = make_table(in_sessions(runs, lambda values, repeat: values["precision"]))
    verdict = judge_replacement(table, "precision", (OLD, NEW), Until())
    assert (verdict.word, verdict.effects, len(verdict.apart), verdict.repeats_wanted) == ("cannot say", [], 1, None)
    table = make_table(in_sessions(runs, lambda values, repeat: "now"))
    assert judge_replacement(table, "precision", (OLD, NEW), Until()).word == "discard"


def judged_by_a_loss(new: float, spread: float = 1, repeats: int = 10) -> Any:
    """Trials whose loss is 2 with noise of 0.1 x `spread`, and another one with the second value."""
    runs = results({"precision": [OLD, NEW], "batch_per_rank": 16}, lambda values, repeat: 100, repeats=repeats)
    noise = np.random.default_rng(0).normal(0, 0.1 * spread, (2, repeats))
    for record in runs.records:
        is_new = record.config["precision"] == NEW
        record.metrics["val_loss"] = (new if is_new else 2.0) + noise[int(is_new), record.repeat]
    runs.judged_by = "val_loss", True
    return make_table(runs)


@pytest.mark.parametrize(
    ("new", "spread", "word"),
    [(1.8, 1, "keep"), (2.2, 1, "discard"), (2.0, 1, "cannot say"), (2.0, 0.1, "discard"), (1.8, 10, "cannot say")],
)
def test_by_a_metric_what_is_better_beyond_chance_is_kept_and_what_is_equal_is_not(
    new: float, spread: float, word: str
) -> None:
    verdict = judge_replacement(judged_by_a_loss(new, spread), "precision", (OLD, NEW), Until())
    assert verdict.word == word
    (effect,) = verdict.effects
    assert effect.measure.metric == "val_loss"


def without_the_loss(table: Any, *, of: tuple[str, ...], blocks: int) -> Any:
    """A table whose runs of some values have no loss in the first blocks."""
    for trial in table.rows:
        for record in trial.records:
            if trial.factors["precision"] in of and record.repeat < blocks:
                del record.metrics["val_loss"]
    return table


@pytest.mark.parametrize(("of", "word"), [((OLD, NEW), "cannot say"), ((OLD,), "cannot say"), ((NEW,), "discard")])
def test_what_has_no_number_where_the_other_one_has_it_is_discarded(of: tuple[str, ...], word: str) -> None:
    table = without_the_loss(judged_by_a_loss(1.8), of=of, blocks=10)
    assert judge_replacement(table, "precision", (OLD, NEW), Until()).word == word


@pytest.mark.parametrize(("of", "word"), [((OLD, NEW), "keep"), ((OLD,), "keep"), ((NEW,), "cannot say")])
def test_of_what_is_better_in_some_runs_and_has_no_number_in_others_nothing_is_said(
    of: tuple[str, ...], word: str
) -> None:
    table = without_the_loss(judged_by_a_loss(1.2), of=of, blocks=3)
    verdict = judge_replacement(table, "precision", (OLD, NEW), Until())
    assert (verdict.word, len(verdict.failures)) == (word, word == "cannot say")


@pytest.mark.parametrize(("failed", "word"), [(OLD, "keep"), (NEW, "cannot say")])
def test_of_what_fails_in_some_runs_where_the_other_one_does_not_nothing_is_said(failed: str, word: str) -> None:
    table = table_of({OLD: 1, NEW: 1.1}, repeats=8)
    for trial in table.rows:
        if trial.factors["precision"] == failed:
            trial.records[2].outcome = Outcome.DIVERGED
            del trial.counted
    verdict = judge_replacement(table, "precision", (OLD, NEW), Until())
    assert verdict.word == word
    assert [*verdict.failures] == (["1 of its 8 runs ended otherwise (1 diverged)"] if word == "cannot say" else [])


@pytest.mark.parametrize("cause", ["fails", "error", "timeout"])
def test_of_what_is_worse_than_the_runs_of_the_other_one_that_did_not_fail_nothing_is_said(cause: str) -> None:
    table = table_of({OLD: 1, NEW: 0.9}, repeats=8)
    for trial in table.rows:
        if trial.factors["precision"] == OLD and cause == "fails":
            trial.records[2].outcome = Outcome.ERROR
            del trial.counted
        elif trial.factors["precision"] == OLD:
            trial.records[2].earlier_attempts = [{"outcome": cause, "reason": "exit code 7", "seconds": 1.0}]
    verdict = judge_replacement(table, "precision", (OLD, NEW), Until())
    assert (verdict.word, len(verdict.failures), len(verdict.failures_of_base)) == ("cannot say", 0, 1)


@pytest.mark.parametrize(("failed", "word"), [(0, "discard"), (1, "discard"), (4, "cannot say"), (8, "failed")])
def test_what_never_ends_ok_is_discarded_unless_the_other_one_fails_as_well(failed: int, word: str) -> None:
    table = table_of({OLD: 1, NEW: 1}, repeats=8)
    for trial in table.rows:
        is_old = trial.factors["precision"] == OLD
        for record in trial.records:
            if is_old and record.repeat < failed:
                record.outcome = Outcome.ERROR
            elif not is_old:
                record.outcome = Outcome.ERROR if record.repeat < 2 else Outcome.SKIPPED
        del trial.counted
    assert judge_replacement(table, "precision", (OLD, NEW), Until()).word == word


def test_of_runs_that_repeat_one_nothing_is_known_of_chance() -> None:
    verdict = judge_replacement(judged_by_a_loss(1.5, spread=0), "precision", (OLD, NEW), Until())
    assert [effect.verdict for effect in verdict.effects] == ["once"]
    assert verdict.word == "cannot say"
