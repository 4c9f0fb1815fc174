"""What each change does of fields that were changed one at a time, or some together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dmls_ray.analysis.findings.answer import Answer
from dmls_ray.analysis.findings.changes import answer_on_changes
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.words_on_pairs import base_text, pair_label
from tests.analysis.samples import results, row_of


@pytest.mark.parametrize(("noise", "is_explained"), [(0.5, False), (0.01, True)])
def test_a_speed_that_may_differ_by_chance_is_not_explained_whatever_the_accuracy_is(
    noise: float, is_explained: bool
) -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return 100.0 if values["l1"] else 120.0 * (1 + noise * (repeat % 2))

    variants = [{}, {"l1": 0.1}]
    runs = results({"batch_per_rank": 16}, rate, accuracy=lambda values, repeat: values["l1"], variants=variants)
    parts = ("data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "rest_ms")
    for record in runs.records:
        record.metrics |= dict.fromkeys(parts, 1.0 + record.config["l1"])
    found = answer_on_changes(replace(make_table(runs), changed=("l1",)))
    assert found.lead[0].verdict == "more"
    assert (found.why is not None) == is_explained


GAINS = {"dropout": (0.02, 0.021), "l1": (-0.03, -0.031), "label_smoothing": (-0.03, 0.05)}


def answer_of_changes(changes: list[dict[str, Any]], repeats: int = 12) -> Answer:
    def accuracy(values: dict[str, Any], repeat: int) -> float:
        changed = [name for name in GAINS if values[name] not in (0.0, None, "off")]
        return 0.8 + sum(GAINS[name][repeat % 2] for name in changed)

    runs = results(
        {"batch_per_rank": 16}, lambda values, repeat: 100.0, accuracy=accuracy, variants=changes, repeats=repeats
    )
    return answer_on_changes(replace(make_table(runs), changed=tuple(GAINS)))


def test_each_change_is_compared_with_the_trial_without_any_the_best_first() -> None:
    found = answer_of_changes([{}, {"l1": 0.1}, {"dropout": 0.3}])
    assert [pair_label(comparison[0].pair) for comparison in found.comparisons] == ["dropout=0.3", "l1=0.1"]
    assert [comparison[0].verdict for comparison in found.comparisons] == ["more", "less"]
    assert [effect.measure.name for effect in found.comparisons[0]][:2] == ["test_accuracy", "speed"]
    assert (found.headline, pair_label(found.lead[0].pair)) == ("pair", "dropout=0.3")


def test_a_change_with_the_highest_mean_that_may_be_chance_does_not_lead() -> None:
    found = answer_of_changes([{}, {"dropout": 0.3}, {"label_smoothing": 0.1}])
    assert pair_label(found.lead[0].pair) == "dropout=0.3"


def test_without_a_gain_beyond_chance_the_nearest_change_leads() -> None:
    found = answer_of_changes([{}, {"l1": 0.1}, {"label_smoothing": 0.1}])
    assert (found.headline, pair_label(found.lead[0].pair)) == ("none_better", "label_smoothing=0.1")


def test_without_the_trial_without_a_change_nothing_is_compared() -> None:
    assert answer_of_changes([{"l1": 0.1}, {"dropout": 0.3}]).headline == "not_compared"


def test_where_every_trial_changes_the_same_fields_the_first_one_given_is_the_base() -> None:
    variants = [{"l1": 0.1, "lr": 0.3}, {"l1": 0.05, "lr": 0.1}, {"l1": 0.2, "lr": 0.2}]
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, variants=variants)
    given = {"l1": [0.1, 0.05, 0.2], "lr": [0.3, 0.1, 0.2]}
    found = answer_on_changes(replace(make_table(runs, given=given), changed=("lr", "l1")))
    assert {row_of(comparison) for comparison in found.comparisons} == {
        (f"{change} vs lr=0.3 l1=0.1", f"batch_per_rank={batch}")
        for change in ("lr=0.1 l1=0.05", "lr=0.2 l1=0.2")
        for batch in (16, 32)
    }
    assert {base_text(comparison[0].pair) for comparison in found.comparisons} == {"lr=0.3 l1=0.1"}
