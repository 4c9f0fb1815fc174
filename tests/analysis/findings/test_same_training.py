"""Whether two trials train the same, by what was seen of them."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.findings.same_training import training_change
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.words import training_text
from tests.analysis.samples import results


def pair_of(first: dict[str, Any], second: dict[str, Any]) -> Pair:
    """Two trials, whose runs have these metrics and this number format besides their rates."""
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    for record in runs.records:
        seen = first if record.config["batch_per_rank"] == 16 else second
        early = seen.get("loss", 2.0) + record.repeat
        early -= record.repeat * (1 - 1 / seen.get("passes", 1))
        record.metrics |= {"samples_per_step": seen["samples"], "early_loss": early}
        record.metrics["backward_passes"] = seen.get("passes", 1)
        record.facts["number_format"] = seen.get("format", "float32")
    base, trial = make_table(runs).rows
    return Pair("batch_per_rank", "32 vs 16", "", trial, base)


@pytest.mark.parametrize(
    ("second", "is_same", "losses"),
    [
        ({"samples": 64, "loss": 2.0001}, True, "equal"),
        ({"samples": 64, "loss": 1.0, "passes": 2}, True, "equal"),  # of two passes with half of the loss each
        ({"samples": 64, "loss": 2.1}, False, "differ"),
        ({"samples": 128}, False, "equal"),
        ({"samples": 64, "format": "autocast bfloat16"}, False, "equal"),
    ],
)
def test_training_is_the_same_with_one_batch_one_format_and_equal_early_losses(
    second: dict[str, Any], is_same: bool, losses: str
) -> None:
    change = training_change(pair_of({"samples": 64}, second))
    assert change is not None
    assert (change.is_same, change.losses) == (is_same, losses)


def test_each_change_is_named() -> None:
    changed = training_text(training_change(pair_of({"samples": 64}, {"samples": 128, "format": "tf32"})))
    assert "128 samples a step instead of 64" in changed
    assert "tf32 instead of float32" in changed
    assert "(3.1 and 3)" in training_text(training_change(pair_of({"samples": 64}, {"samples": 64, "loss": 2.1})))


def test_nothing_is_said_where_samples_were_not_counted() -> None:
    base, trial = make_table(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)).rows
    assert training_change(Pair("batch_per_rank", "32 vs 16", "", trial, base)) is None
    assert training_text(None) == ""
