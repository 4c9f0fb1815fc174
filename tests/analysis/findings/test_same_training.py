"""Whether two trials train the same, by what was seen of them."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.findings.answer import answer_along
from dmls_ray.analysis.findings.same_training import TrainingChange, training_change
from dmls_ray.analysis.summary import TRAINING, AnswerTable
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.words_on_training import training_cell, training_text
from tests.analysis.samples import results

FIRST = {"samples": 64}


def pair_of(first: dict[str, Any], second: dict[str, Any]) -> Pair:
    """Two trials whose runs were seen so, besides their rates; None: it was not seen."""
    runs = results({"optimizer": ["adam", "sgd"], "batch_per_rank": 16}, lambda values, repeat: 100.0)
    for record in runs.records:
        seen = {"loss": 2.0, "first": 2.5, "passes": 1, "format": "float32"}
        seen |= first if record.config["optimizer"] == "adam" else second
        record.seed += seen.get("seed", 0)
        record.config["world_size"] = seen.get("ranks", 1)
        metrics = {
            "samples_per_step": seen.get("samples"),
            "tokens_per_step": seen.get("tokens"),
            "early_loss": seen["loss"] and (seen["loss"] + record.repeat) / seen["passes"],
            "first_loss": seen["loss"] and (seen["first"] + record.repeat) / seen["passes"],
            "last_loss": seen["loss"] and seen.get("last", 1.0) / seen["passes"],
            "tenth_loss": seen["loss"] and seen.get("tenth", 1.5) / seen["passes"],
            "steps_made": seen.get("made", 50),
            "backward_passes": seen["passes"],
            "parameters": seen.get("parameters"),
            "buffer_elements": seen.get("buffer_elements"),
            "counted_steps": seen.get("counted"),
        }
        record.metrics |= {name: value for name, value in metrics.items() if value is not None}
        if "unknown" in seen:
            record.facts["samples_unknown"] = seen["unknown"]
        if seen["format"]:
            record.facts["number_format"] = seen["format"]
    base, trial = make_table(runs).rows
    return Pair(trial, base)


def change_of(first: dict[str, Any], second: dict[str, Any]) -> TrainingChange:
    change = training_change(pair_of(first, second))
    assert change is not None
    return change


@pytest.mark.parametrize(
    ("second", "verdict", "losses"),
    [
        ({"loss": 2.00001}, "same", "equal"),
        ({"passes": 2}, "same", "equal"),  # of two passes with half of the loss each
        ({"loss": 2.0001}, "unclear", "later"),  # another learning rate
        ({"loss": 2.0001, "first": 2.6}, "unclear", "differ"),  # another seed
        ({"last": 1.0001}, "same", "equal"),
        ({"last": 1.01}, "unclear", "last"),  # another weight decay
        ({"last": 1.01, "made": 66}, "same", "equal"),  # the last loss of another step
        ({"made": 66, "tenth": 1.6}, "unclear", "last"),
        ({"format": "", "loss": 2.00001}, "same", "equal"),  # a compiled model is not looked into
        ({"format": "tf32"}, "changed", "equal"),
        ({"samples": 128}, "changed", "equal"),
        ({"ranks": 2}, "same", "equal"),
        ({"ranks": 2, "loss": 2.1, "first": 2.6}, "unknown", "ranks"),
        ({"seed": 100}, None, None),
        ({"loss": None}, "unknown", "unknown"),
    ],
)
def test_training_is_the_same_with_one_batch_one_format_and_equal_early_losses(
    second: dict[str, Any], verdict: str | None, losses: str | None
) -> None:
    change = training_change(pair_of(FIRST, FIRST | second))
    seen = (None, None) if change is None else (change.verdict, change.losses)
    assert seen == (verdict, losses)


def test_formats_of_16_bits_round_more() -> None:
    half = FIRST | {"format": "autocast bfloat16"}
    assert change_of(half, half | {"loss": 2.0004}).verdict == "same"


def test_of_code_without_samples_tokens_say_whether_the_batch_changed() -> None:
    assert change_of({"tokens": 512}, {"tokens": 1024}).is_other
    assert "1,024 tokens a step instead of 512" in training_text(change_of({"tokens": 512}, {"tokens": 1024}))
    longer = change_of(FIRST | {"tokens": 512}, FIRST | {"tokens": 1024})
    assert longer.is_other, "the context is twice as long"


def test_where_steps_are_not_counted_only_equal_training_is_said() -> None:
    assert change_of({}, {}).verdict == "same"
    assert training_change(pair_of({}, {"loss": 2.1})) is None
    assert training_change(pair_of({"parameters": 3}, {"loss": 2.1, "parameters": 4})) is None


def test_losses_are_compared_where_samples_are_not_known() -> None:
    unknown = {"unknown": "loader: 4, model: 3"}
    assert change_of(unknown, unknown | {"loss": 2.1, "first": 2.6}).verdict == "unclear"
    assert training_change(pair_of({}, unknown | {"loss": None})) is None


def test_each_change_is_named() -> None:
    changed = training_text(change_of(FIRST, {"samples": 128, "format": "tf32"}))
    assert "128 samples a step instead of 64" in changed
    assert "tf32 instead of float32" in changed
    assert "(3.1 and 3)" in training_text(change_of(FIRST, FIRST | {"loss": 2.1, "first": 2.6}))
    assert "(3.0001 and 3 over three steps)" in training_text(change_of(FIRST, FIRST | {"loss": 2.0001}))
    assert "within 0.001%" in training_text(change_of(FIRST, FIRST))
    assert training_text(None) == training_cell(None) == ""


def test_nothing_is_said_where_nothing_was_seen() -> None:
    base, trial = make_table(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)).rows
    assert training_change(Pair(trial, base)) is None


def test_each_row_of_an_answer_says_whether_the_training_changed_where_rows_differ() -> None:
    runs = results({"batch_per_rank": [16, 32], "optimizer": ["sgd", "adam"]}, lambda values, repeat: 100.0 + repeat)
    for record in runs.records:
        record.metrics |= {"samples_per_step": record.config["batch_per_rank"], "early_loss": 2.0}
    answer = AnswerTable(answer_along(make_table(runs), "batch_per_rank"))
    (frame,) = answer.tables
    assert set(frame[TRAINING]) == {"changed", "same"}
    for record in runs.records:
        record.metrics["samples_per_step"] = 16
    answer = AnswerTable(answer_along(make_table(runs), "batch_per_rank"))
    assert TRAINING not in answer.tables[0]
    assert {effect.training for effect in answer.json_fields()["effects"]} == {"same"}


SMALL = FIRST | {"parameters": 300_000, "buffer_elements": 0}


def test_another_model_is_said_as_that() -> None:
    change = change_of(SMALL, SMALL | {"parameters": 1_200_000, "loss": 2.1, "first": 2.6})
    assert change.verdict == "changed"
    text = training_text(change)
    assert "The training itself changed: another model: 1.2M parameters instead of 0.3M." in text
    assert "dropout" not in text


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"parameters": 300_100}, "another model: 300,100 parameters instead of 300,000"),
        ({"buffer_elements": 128}, "another model: 128 elements of buffers instead of 0"),
        ({"parameters": 3_000, "first": 2.5}, "other parts of the model are trained: 3,000 parameters instead of"),
        ({}, "; dropout, another order of samples"),
    ],
)
def test_what_differs_of_the_model_is_named(second: dict[str, Any], words: str) -> None:
    assert words in training_text(change_of(SMALL, SMALL | {"loss": 2.1, "first": 2.6} | second))


@pytest.mark.parametrize(
    "second",
    [
        {"parameters": 150_000},  # equal losses: a part of one model
        {"parameters": 150_000, "ranks": 2, "loss": 2.1},  # other ranks see other parts
    ],
)
def test_parts_of_one_model_are_no_other_model(second: dict[str, Any]) -> None:
    assert not change_of(SMALL, SMALL | second).is_other


def test_a_model_that_is_divided_among_ranks_is_no_other_model() -> None:
    ranks = SMALL | {"ranks": 2}
    assert not change_of(ranks, ranks | {"parameters": 150_100, "loss": 2.1}).model
    assert change_of(ranks, ranks | {"parameters": 200_000, "loss": 2.1}).model


def test_another_order_in_later_epochs_is_among_the_causes() -> None:
    assert "another order of samples in later epochs" in training_text(change_of(FIRST, FIRST | {"last": 1.01}))


def test_means_over_other_steps_may_be_of_equal_batches() -> None:
    long, short = {"samples": 62.7, "counted": 45}, {"samples": 64, "counted": 10}
    assert change_of(long, short).verdict == "same"
    assert "64 samples a step in both" in training_text(change_of(long, short))
    unclear = change_of(long, short | {"loss": 2.1, "first": 2.6})
    assert (unclear.verdict, unclear.sizes) == ("unclear", {})
    assert training_text(unclear).startswith("The training may have changed: the losses")
    assert change_of(long, short | {"samples": 128}).is_other
    assert change_of({"samples": 64, "counted": 10}, {"samples": 32, "counted": 4}).is_other
    assert change_of(long, long | {"samples": 64}).is_other
