from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.learning import learning_chart, tradeoff_chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.aggregate import take_epochs
from dmls_ray.records.model import EpochRecord
from tests.analysis.figures.reading import names, panels, points, series
from tests.analysis.samples import along, own_results, results

TRAIN = [1.0, 0.6, 0.4, 0.3]
TEST = [1.0, 0.5, 0.6, 0.7]
"""Test loss is least after epoch 2 and ends higher, while train loss falls: overfit from epoch 3."""


def runs_of(axes: dict[str, Any], test: list[float] = TEST) -> Results:
    found = results(axes, lambda values, repeat: 100.0)
    for record in found.records:
        epochs = []
        for number, (train, loss) in enumerate(zip(TRAIN, test, strict=True), start=1):
            metrics = {"train_loss": train, "test_loss": loss + 0.01 * record.repeat}
            metrics |= {"train_accuracy": 0.8, "test_accuracy": 0.7}
            epochs.append(EpochRecord(epoch=number, metrics=metrics))
        take_epochs(record, epochs)
    return found


def test_curves_are_means_over_the_runs_of_each_epoch() -> None:
    loss, accuracy = panels(learning_chart(make_table(runs_of({"batch_per_rank": 16}))), 2)
    assert loss.y.label == "test and train loss (nats a sample)"
    assert accuracy.y.label == "test and train accuracy (fraction of samples)"
    means = [(mean * (mean + 0.01) * (mean + 0.02)) ** (1 / 3) for mean in TEST]
    assert points(loss, "test") == pytest.approx(dict(enumerate(means, 1)))
    assert points(loss, "train") == dict(enumerate(TRAIN, 1))
    assert set(points(accuracy, "train").values()) == {0.8}
    test = series(loss, "test")
    assert test.connected
    found = estimate([0.5, 0.51, 0.52], "amount")
    assert (test.points[1].low, test.points[1].high) == pytest.approx((found.low, found.high))
    assert series(loss, "train").same_as == "test"


def test_the_epoch_from_which_a_trial_overfits_is_marked_on_its_test_curve() -> None:
    found = learning_chart(make_table(runs_of({"batch_per_rank": 16})))
    loss, accuracy = panels(found, 2)
    assert points(loss, "overfitting begins") == {3: 0.61}
    assert points(accuracy, "overfitting begins") == {3: 0.7}
    ring_of = series(loss, "overfitting begins")
    assert (ring_of.kind, ring_of.same_as) == ("ring", "test"), "it stays around its point if that is moved"
    (ring,) = ring_of.points
    assert ring.text == "test: the mean test loss rises from here beyond chance, while the train loss falls"


def test_a_curve_ends_where_the_first_of_its_runs_has_ended() -> None:
    found = runs_of({"batch_per_rank": 16})
    del found.records[1].epochs[2:]
    assert list(points(panels(learning_chart(make_table(found)), 2)[0], "test")) == [1, 2]


def test_up_to_four_trials_have_training_and_test_in_one_panel_and_more_have_a_panel_for_each() -> None:
    few = panels(learning_chart(make_table(runs_of({"batch_per_rank": [1, 2, 3, 4]}))), 2)
    assert names(few[0])[:2] == ["batch_per_rank 1", "batch_per_rank 1, train"]
    many = panels(learning_chart(make_table(runs_of({"batch_per_rank": [1, 2, 3, 4, 5]}))), 4)
    labels = [panel.y.label.split(" (")[0] for panel in many]
    assert labels == ["test loss", "train loss", "test accuracy", "train accuracy"]
    assert names(many[0])[:2] == ["batch_per_rank 1", "batch_per_rank 2"]
    assert "overfitting begins" in names(many[0])
    assert "overfitting begins" not in names(many[1])


def test_a_user_function_that_reports_only_test_losses_has_their_curve() -> None:
    runs = own_results({"depth": [1]}, lambda values, repeat: (1.0, {}))
    for record in runs.records:
        take_epochs(record, [EpochRecord(epoch=epoch, metrics={"test_loss": 4.0 - epoch}) for epoch in (1, 2)])
    (loss,) = panels(learning_chart(make_table(runs)), 1)
    assert loss.y.label == "test loss (as the training function reports it)"
    assert points(loss, "test") == {1: 3.0, 2: 2.0}


OF_BATCH = {16: (100.0, 0.9), 32: (200.0, 0.8), 64: (50.0, 0.7)}
"""Rate and accuracy: 32 is twice as fast as 16, which is more accurate; 64 is beaten by both, and needs most memory."""


def of_batches() -> Results:
    return along("batch_per_rank", OF_BATCH)


def test_trials_on_the_front_are_named_and_the_others_stand_back() -> None:
    time, memory = panels(tradeoff_chart(make_table(of_batches())), 2)
    assert names(time) == names(memory) == ["not on the front", "batch_per_rank 16", "batch_per_rank 32"]
    assert points(time, "batch_per_rank 16") == {20.0: 0.9}
    assert points(time, "batch_per_rank 32") == {10.0: 0.8}
    assert points(time, "not on the front") == {40.0: 0.7}
    assert points(memory, "not on the front") == {164.0: 0.7}
    assert [item.muted for item in time.series] == [True, False, False], "those on the front are drawn last"
    assert series(time, "not on the front").points[0].text == "batch_per_rank 64, n=3"
    assert (time.x.label, memory.x.label) == ("run time (s)", "tensor memory of a rank (MiB)")


def test_a_front_of_more_trials_than_distinguishable_series_is_one_series() -> None:
    many = {2**place: (100.0 + place, 0.9 - 0.01 * place) for place in range(9)}
    time, _ = panels(tradeoff_chart(make_table(along("batch_per_rank", many))), 2)
    assert names(time) == ["on the front"]
    assert series(time, "on the front").points[0].text == "batch_per_rank 1, n=3"


def test_a_search_has_a_front_of_memory_and_accuracy_alone() -> None:
    runs = of_batches()
    for record in runs.records:
        record.mode = "search"
    found = tradeoff_chart(make_table(runs))
    (memory,) = panels(found, 1)
    assert "time" not in found.title
    assert names(memory) == ["not on the front", "batch_per_rank 16"]
