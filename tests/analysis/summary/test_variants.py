from __future__ import annotations

from typing import Any

from dmls_ray.analysis.summary.variants import summarize_variants
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import results


def test_each_change_made_alone_is_compared_with_the_trial_without_any() -> None:
    gains = {"dropout": [0.029, 0.03, 0.031], "l1": [-0.1, -0.11, -0.1], "label_smoothing": [0.002, -0.002, 0.0]}

    def accuracy(values: dict[str, Any], repeat: int) -> float:
        changed = [name for name in gains if values[name]]
        return 0.8 + sum(gains[name][repeat] for name in changed)

    changes = [{}, {"dropout": 0.3}, {"l1": 0.1}, {"label_smoothing": 0.1}]
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0, accuracy=accuracy, variants=changes)
    assert "the gap" not in summarize_variants(make_table(runs), ["dropout", "l1", "label_smoothing"]), "not evaluated"
    for record in runs.records:
        record.train_eval_accuracy = record.train_accuracy
    table = make_table(runs)
    assert {"acc. gap", "overfit from epoch"} <= set(table.frame().columns)
    assert summarize_variants(table, ["dropout", "l1", "label_smoothing"]) == (
        "Against a test accuracy of 0.800 [0.800, 0.800] without (at 5 epochs, lr 0.001), it is higher with "
        "dropout=0.3 (+0.030 [+0.022, +0.038]), lower with l1=0.1 (-0.103 [-0.115, -0.092]), indistinguishable with "
        "label_smoothing=0.1 (+0.000 [-0.008, +0.008]); the gap between train and test accuracy, 0.150 without, is "
        "higher with l1=0.1 (+0.103 [+0.092, +0.115]), lower with dropout=0.3 (-0.030 [-0.038, -0.022]) (n=3; "
        "intervals of each quantity hold together)."
    )


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
        record.test_samples, record.train_eval_accuracy = 359, record.train_accuracy
    assert summarize_variants(make_table(runs), ["l1"]) == (
        "Against a test accuracy of 0.984 [0.974, 0.995] without (at 5 epochs, lr 0.001), it is indistinguishable with "
        "l1=0.0001 (+0.002 [-0.016, +0.019]) (n=3)."
    )


def test_a_change_without_a_comparable_block_is_named() -> None:
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0, variants=[{}, {"l1": 0.1}])
    for record in runs.records:
        record.versions = {"torch": str(record.config["l1"])}
    assert "it is not compared, since no block has both with the same versions, with l1=0.1 (n=3)" in (
        summarize_variants(make_table(runs), ["l1"])
    )
