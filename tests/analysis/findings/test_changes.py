"""What changes that were made one at a time do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dmls_ray.analysis.findings.answer import Answer
from dmls_ray.analysis.findings.changes import answer_on_changes
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import results

GAINS = {"dropout": (0.02, 0.021), "l1": (-0.03, -0.031), "label_smoothing": (-0.03, 0.05)}


def answer(changes: list[dict[str, Any]], repeats: int = 12) -> Answer:
    def accuracy(values: dict[str, Any], repeat: int) -> float:
        changed = [name for name in GAINS if values[name] not in (0.0, None, "off")]
        return 0.8 + sum(GAINS[name][repeat % 2] for name in changed)

    runs = results(
        {"batch_per_rank": 16}, lambda values, repeat: 100.0, accuracy=accuracy, variants=changes, repeats=repeats
    )
    return answer_on_changes(replace(make_table(runs), changed=tuple(GAINS)))


def test_each_change_is_compared_with_the_trial_without_any_the_best_first() -> None:
    found = answer([{}, {"l1": 0.1}, {"dropout": 0.3}])
    assert [comparison[0].pair.label for comparison in found.comparisons] == ["dropout=0.3", "l1=0.1"]
    assert [comparison[0].verdict for comparison in found.comparisons] == ["more", "less"]
    assert [effect.measure.name for effect in found.comparisons[0]][:2] == ["test_accuracy", "speed"]
    assert (found.headline, found.lead[0].pair.label) == ("pair", "dropout=0.3")


def test_a_change_with_the_highest_mean_that_may_be_chance_does_not_lead() -> None:
    found = answer([{}, {"dropout": 0.3}, {"label_smoothing": 0.1}])
    assert found.lead[0].pair.label == "dropout=0.3"


def test_without_a_gain_beyond_chance_the_nearest_change_leads() -> None:
    found = answer([{}, {"l1": 0.1}, {"label_smoothing": 0.1}])
    assert (found.headline, found.lead[0].pair.label) == ("none_better", "label_smoothing=0.1")


def test_without_the_trial_without_a_change_nothing_is_compared() -> None:
    assert answer([{"l1": 0.1}, {"dropout": 0.3}]).headline == "no_baseline"
