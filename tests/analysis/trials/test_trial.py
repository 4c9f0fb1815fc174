"""A function that sets its seed itself gives equal results in all repeats."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.findings.question import claims_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import in_sessions, own_results


def sweep(measures: Any, *, repeats: int = 3) -> Results:
    """Runs of two values of lr, whose seconds differ from run to run."""
    return own_results(
        {"lr": [0.1, 0.2]},
        lambda values, repeat: (1 + values["lr"] + repeat / 100, measures(values["lr"], repeat)),
        repeats=repeats,
    )


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        (lambda lr, repeat: {"validation_loss": 2.5 + lr}, ["validation_loss"]),
        (lambda lr, repeat: {"loss": 2.5 + lr, "accuracy": 0.5 + repeat / 100}, ["loss"]),
        (lambda lr, repeat: {"validation_loss": 2.5 + lr + repeat / 1e9}, ["validation_loss"]),
        (lambda lr, repeat: {"validation_loss": 2.5 + lr + repeat / 1e3}, []),
        (lambda lr, repeat: {"train_loss": 2.5 + repeat, "weight_decay_loss": 0.25}, []),
        (lambda lr, repeat: {"train_loss": 2.5, "hinge_loss": 0.0}, ["train_loss"]),
        (lambda lr, repeat: {"parameters": 1000 * lr, "train_loss": 0.0}, []),
    ],
)
def test_losses_that_are_equal_over_seeds_are_noticed(measures: Any, expected: list[str]) -> None:
    assert [row.same_results for row in make_table(sweep(measures)).rows] == [expected] * 2
    assert [row.same_results for row in make_table(sweep(measures, repeats=1)).rows] == [[], []]


def test_what_was_measured_once_has_no_interval_and_times_have_theirs() -> None:
    table = make_table(sweep(lambda lr, repeat: {"validation_loss": 2.5 + lr, "score": 3.5}))
    frame = table.frame()
    assert frame["validation_loss [95%]"].tolist() == ["2.600", "2.700"]
    assert frame["score [95%]"].tolist() == ["3.500", "3.500"]
    assert all("[" in text for text in frame["s/run [95%]"])
    (note,) = [note for note in table.notes if "although their seeds differ" in note]
    assert "lr=0.1; lr=0.2" in note
    one, other = table.rows
    contrast = one.comparisons.against(other, one, "validation_loss", is_ratio=True)
    assert contrast is not None
    assert (contrast.low, contrast.high) == (None, None)
    assert contrast.centre == pytest.approx(2.7 / 2.6)


def test_a_metric_that_is_no_matter_of_chance_has_no_interval_and_no_note() -> None:
    table = make_table(sweep(lambda lr, repeat: {"loss": 2.5 + repeat, "layers": 100 * lr}))
    assert table.frame()["layers [95%]"].tolist() == ["10", "20"]
    assert [claim.measure.name for claim in claims_of(table, ["lr"])] == ["total_s", "loss"]
    assert not [note for note in table.notes if "although their seeds differ" in note]


@pytest.mark.parametrize("level", [0.5, 1.0, 0.9137])
def test_an_accuracy_on_unknown_samples_that_is_equal_in_all_repeats_has_no_interval(level: float) -> None:
    table = make_table(sweep(lambda lr, repeat: {"test_accuracy": level - lr, "train_loss": 3.0}))
    one, other = table.rows
    for metric in ("test_accuracy", "train_loss"):
        assert one.estimates[metric].low is None
        contrast = one.comparisons.against(other, one, metric, is_ratio=False)
        assert contrast is not None
        assert contrast.low is None
    assert [claim.measure.name for claim in claims_of(table, ["lr"])] == ["total_s"]


def test_a_trial_that_seeds_itself_is_compared_with_one_that_does_not_by_the_noise_of_the_other() -> None:
    table = make_table(sweep(lambda lr, repeat: {"validation_loss": 2.5 + (lr > 0.1) * repeat / 10}))
    one, other = table.rows
    contrast = one.comparisons.against(other, one, "validation_loss", is_ratio=True)
    assert contrast is not None
    assert contrast.low is not None


@pytest.mark.parametrize(
    ("sessions", "count"),
    [
        ({0.1: "a", 0.2: "a"}, 4),
        ({0.1: "a", 0.2: "b"}, None),  # the second one was measured later, alone
        ({0.1: "a", 0.2: "ab"}, 2),  # and from its third repeat on
    ],
)
def test_times_are_compared_in_blocks_of_one_session_and_losses_in_all(
    sessions: dict[float, str], count: int | None
) -> None:
    runs = sweep(lambda lr, repeat: {"validation_loss": 2.5 + lr + repeat / 9, "score": lr + repeat}, repeats=4)
    runs = in_sessions(runs, lambda values, repeat: sessions[values["lr"]][repeat // 2 % len(sessions[values["lr"]])])
    one, other = make_table(runs).rows
    found = {
        name: one.comparisons.against(other, one, name, is_ratio=True)
        for name in ("total_s", "score", "validation_loss")
    }
    counts = {name: contrast and contrast.n for name, contrast in found.items()}
    assert counts == {"total_s": count, "score": count, "validation_loss": 4}
