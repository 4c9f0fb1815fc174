"""Which trials overfit, and how that is said."""

from __future__ import annotations

import pytest

from dmls_ray.analysis.findings.overfitting import overfitting_of
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.aggregate import take_epochs
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import results


def with_losses(test_losses: list[float], dropouts: list[float], repeats: int) -> Results:
    """Runs whose train loss falls, and whose test loss is as given where dropout is 0, and falls elsewhere."""
    axes = {"batch_per_rank": 16, "dropout": dropouts}
    runs = results(axes, lambda values, repeat: 100.0, repeats=repeats)
    for record in runs.records:
        epochs = []
        for number, rising in enumerate(test_losses, start=1):
            falling = 1.0 / number
            test = rising + record.repeat / 1000 if record.config["dropout"] == 0 else falling
            losses = {"train_loss": falling, "test_loss": test, "train_accuracy": 0.99, "test_accuracy": 0.42}
            epochs.append(EpochRecord(epoch=number, metrics=losses))
        take_epochs(record, epochs)
    return runs


def said(runs: Results) -> str:
    """The sentence on overfitting of an answer; empty without one."""
    sentences = SweepSummary(runs, SweepQuestion(axis="dropout")).answer.sentences
    return next((sentence for sentence in sentences if sentence.startswith("Overfitting")), "")


@pytest.mark.parametrize(("repeats", "runs"), [(1, " in 1 run"), (2, " in 2 runs"), (3, "")])
def test_a_single_trial_that_overfits_is_said_to_with_its_epoch_and_accuracies(repeats: int, runs: str) -> None:
    text = said(with_losses([1.0, 0.5, 0.8, 1.2], [0.0], repeats))
    end = "(accuracy 0.990 in training, 0.420 in the test)."
    assert text == f"Overfitting (test loss rises while train loss falls): from epoch 3 of 4 on{runs} {end}"


def test_a_trial_that_overfits_among_others_is_named() -> None:
    assert "dropout=0 from epoch 3 of 4 on (" in said(with_losses([1.0, 0.5, 0.8, 1.2], [0.0, 0.3], 3))


@pytest.mark.parametrize(("losses", "text"), [([1.0, 0.5, 0.4, 0.3], "Overfitting is not shown."), ([1.0], "")])
def test_trials_whose_test_losses_fall_to_the_end_are_not_shown_to_overfit(losses: list[float], text: str) -> None:
    assert said(with_losses(losses, [0.0, 0.3], 3)) == text


def test_too_few_repeats_of_which_one_does_not_overfit_say_nothing() -> None:
    runs = with_losses([1.0, 0.5, 0.8, 1.2], [0.0], 2)
    del runs.records[0].metrics["overfit_epoch"]
    assert overfitting_of(make_table(runs, ["dropout"]).rows) == []
    assert said(runs) == ""


def test_losses_that_are_not_known_to_the_end_say_nothing() -> None:
    runs = with_losses([1.0, 0.5, 0.4, 0.3], [0.0], 3)
    del runs.records[0].epochs[-1].metrics["test_loss"]
    assert said(runs) == ""


def test_runs_that_all_failed_say_nothing() -> None:
    runs = with_losses([1.0, 0.5, 0.4, 0.3], [0.0, 0.3], 3)
    for record in runs.records:
        record.outcome, record.metrics, record.epochs = Outcome.ERROR, {}, []
    assert said(runs) == ""
