from __future__ import annotations

from typing import Any

from dmls_ray.analysis.summary.variants import answer_on_variants
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import results


def test_each_change_made_alone_is_compared_with_the_trial_without_any() -> None:
    gains = {"dropout": [0.029, 0.03, 0.031], "l1": [-0.1, -0.11, -0.1], "label_smoothing": [0.002, -0.002, 0.0]}

    def accuracy(values: dict[str, Any], repeat: int) -> float:
        changed = [name for name in gains if values[name]]
        return 0.8 + sum(gains[name][repeat] for name in changed)

    changes = [{}, {"dropout": 0.3}, {"l1": 0.1}, {"label_smoothing": 0.1}]
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0, accuracy=accuracy, variants=changes)
    found = answer_on_variants(make_table(runs), ["dropout", "l1", "label_smoothing"])
    assert "gap" not in found.text, "not evaluated"
    for record in runs.records:
        record.metrics["train_eval_accuracy"] = record.metrics["train_accuracy"]
    table = make_table(runs)
    assert "acc. gap" in table.frame().columns
    assert "overfit from epoch" not in table.frame().columns, "no run overfits"
    found = answer_on_variants(table, ["dropout", "l1", "label_smoothing"])
    assert found.text.splitlines() == [
        "dropout=0.3 gains 3.0 points of test accuracy; l1=0.1 loses 10.3 points of test accuracy (still rising in the "
        "last epoch).",
        "accuracy: 0.800 at baseline; higher with dropout=0.3 (+3.0 points [+2.0, +4.0]); lower with l1=0.1 (-10.3 "
        "points [-11.8, -8.8]); not distinguished with label_smoothing=0.1 (+0.0 points [-1.0, +1.0])",
        "gap to training: 0.150 at baseline; higher with l1=0.1 (+10.3 points [+8.8, +11.8]); lower with dropout=0.3 "
        "(-3.0 points [-4.0, -2.0])",
    ]


def test_a_gap_that_no_interval_distinguishes_is_not_mentioned() -> None:
    # As recorded: the gaps of two trials differ by half of a test sample.
    right = {0.0: (352, 355, 353), 1e-4: (355, 353, 354)}
    runs = results(
        {"batch_per_rank": 16},
        lambda values, repeat: 100.0,
        accuracy=lambda values, repeat: right[values["l1"]][repeat] / 359,
        variants=[{}, {"l1": 1e-4}],
    )
    for record in runs.records:
        record.metrics["test_samples"], record.metrics["train_eval_accuracy"] = 359, record.metrics["train_accuracy"]
    found = answer_on_variants(make_table(runs), ["l1"])
    assert found.text.splitlines() == [
        "No change is distinguished in test accuracy, the farthest l1=0.0001 (+0.2 points [-2.9, +3.3]).",
        "accuracy: 0.984 at baseline; not distinguished with l1=0.0001 (+0.2 points [-2.9, +3.3])",
    ]


def test_a_change_without_a_comparable_block_is_named() -> None:
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0, variants=[{}, {"l1": 0.1}])
    for record in runs.records:
        record.versions = {"torch": str(record.config["l1"])}
    found = answer_on_variants(make_table(runs), ["l1"])
    assert found.headline.startswith("No change is compared: no block has both")
    assert "l1=0.1 not compared: no block has both" in found.findings[0].text


def test_a_change_with_a_higher_mean_than_the_one_that_gains_beyond_chance_is_named() -> None:
    gains = {"batch_norm": (-0.03, 0.07), "label_smoothing": (0.003, 0.004)}

    def accuracy(values: dict[str, Any], repeat: int) -> float:
        changed = [name for name in gains if values[name] not in (0.0, "off")]
        return 0.8 + sum(gains[name][repeat % 2] for name in changed)

    changes = [{}, {"batch_norm": "on"}, {"label_smoothing": 0.1}]
    axes = {"batch_per_rank": 16}
    runs = results(axes, lambda values, repeat: 100.0, accuracy=accuracy, variants=changes, repeats=12)
    assert answer_on_variants(make_table(runs), list(gains)).headline == (
        "label_smoothing=0.1 gains 0.4 points of test accuracy; the highest, batch_norm=on (+2.0 points [-3.2, +7.2]), "
        "is not distinguished."
    )


def test_what_single_runs_gain_may_be_chance() -> None:
    runs = results(
        {"batch_per_rank": 16},
        lambda values, repeat: 100.0,
        accuracy=lambda values, repeat: 0.8 + values["l1"],
        variants=[{}, {"l1": 0.1}],
        repeats=1,
    )
    found = answer_on_variants(make_table(runs), ["l1"])
    assert found.headline == "l1=0.1 gains 10.0 points of test accuracy (n=1, so perhaps by chance)."
