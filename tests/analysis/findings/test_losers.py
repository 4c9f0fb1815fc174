"""Which trials lose accuracy, and where none of these is recommended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dmls_ray.analysis.advise.rank import advise, front_of, race_for
from dmls_ray.analysis.figures.learning import tradeoff_chart
from dmls_ray.analysis.findings.losers import losers_of
from dmls_ray.analysis.findings.question import decide
from dmls_ray.analysis.prices import with_prices
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.options import Until
from tests.analysis.samples import own_results, results

OPTIMIZERS = {"adam": (100.0, 0.95), "adamw": (104.0, 0.95), "sgd": (120.0, 0.11), "rmsprop": (90.0, 0.96)}
"""Rate and accuracy: sgd is the fastest, and has not learned."""


def noisy_along(name: str, levels: Mapping[Any, tuple[float, float]], *, repeats: int = 3, **axes: Any) -> Results:
    """Runs along a field, of which each value has a rate and an accuracy; both vary a little."""
    swept = results(
        {"batch_per_rank": 16, name: list(levels), **axes},
        lambda values, repeat: levels[values[name]][0] * (1 + 0.001 * repeat),
        accuracy=lambda values, repeat: levels[values[name]][1] + 0.001 * repeat,
        repeats=repeats,
    )
    for record in swept.records:
        record.metrics["tensor_mem_mib"] = 200 - levels[record.config[name]][0]
    return swept


def of_optimizers(**axes: Any) -> Results:
    return noisy_along("optimizer", OPTIMIZERS, **axes)


def lost(swept: Results, name: str) -> list[Any]:
    table = make_table(swept)
    return [loser.pair.trial.factors[name] for loser in losers_of(table, table.rows).values()]


@pytest.mark.parametrize(
    ("name", "accuracies", "expected"),
    [
        ("optimizer", {"adam": 0.95, "sgd": 0.11, "rmsprop": 0.96}, ["sgd"]),
        ("optimizer", {"adam": 0.95, "adamw": 0.94, "rmsprop": 0.965}, ["adamw"]),  # against the default, not the best
        ("optimizer", {"adam": 0.11, "sgd": 0.95}, ["adam"]),  # the default itself has not learned
        ("lr", {0.001: 0.95, 0.01: 0.94, 1.0: 0.1}, [0.01, 1.0]),
        ("lr", {0.0001: 0.1, 0.01: 0.95, 0.1: 0.95}, [0.0001]),  # without the default
        ("precision", {"fp32": 0.95, "amp-bf16": 0.95}, []),
        ("dropout", {0.1: 0.95, 0.9: 0.5}, [0.9]),
        ("model", {"digits_convnet": 0.95, "mnist_convnet": 0.5}, ["mnist_convnet"]),
        ("batch_per_rank", {16: 0.97, 128: 0.85}, []),  # amounts of work
        ("accum_steps", {1: 0.97, 8: 0.7}, []),
        ("epochs", {1: 0.7, 5: 0.97}, []),
        ("world_size", {1: 0.97, 2: 0.9}, []),
        ("dataset", {"digits": 0.97, "mnist": 0.5}, []),  # other tasks
    ],
)
def test_a_choice_loses_against_the_default_and_what_changes_the_work_does_not(
    name: str, accuracies: dict[Any, float], expected: list[Any]
) -> None:
    assert (
        lost(noisy_along(name, {value: (100.0, accuracy) for value, accuracy in accuracies.items()}), name) == expected
    )


@pytest.mark.parametrize(
    ("less", "samples", "expected"),
    [
        (0.01, 1_000_000_000, []),
        (0.04, 1_000_000_000, ["sgd"]),
        (0.04, 10_000, ["sgd"]),
        (0.04, 100, []),  # so few test samples may differ by more
    ],
)
def test_one_run_of_each_loses_only_by_more_than_counts_as_none_and_than_its_test_samples_may_differ_by_chance(
    less: float, samples: int, expected: list[str]
) -> None:
    swept = noisy_along("optimizer", {"adam": (100.0, 0.95), "sgd": (100.0, 0.95 - less)}, repeats=1)
    for record in swept.records:
        record.metrics["test_samples"] = samples
    assert lost(swept, "optimizer") == expected


def test_what_may_be_chance_is_no_loss() -> None:
    noisy = results(
        {"optimizer": ["adam", "sgd"], "batch_per_rank": 16},
        lambda values, repeat: 100.0,
        accuracy=lambda values, repeat: 0.9 if values["optimizer"] == "adam" else (0.95, 0.7, 0.9)[repeat],
    )
    assert lost(noisy, "optimizer") == []


def test_choices_are_compared_at_one_batch() -> None:
    def accuracy(values: dict[str, Any], repeat: int) -> float:
        return (0.95 if values["batch_per_rank"] == 16 else 0.5) - (0.2 if values["optimizer"] == "sgd" else 0.0)

    axes = {"optimizer": ["adam", "sgd"], "batch_per_rank": [16, 64]}
    swept = results(axes, lambda values, repeat: 100.0, accuracy=accuracy)
    assert lost(swept, "optimizer") == ["sgd", "sgd"]


def chosen(swept: Results, aim: str, **how: Any) -> str:
    advice = advise(swept, aim, **how)
    assert advice.best is not None
    return advice.best.name


def test_a_loss_of_a_user_function_counts_as_an_accuracy_does() -> None:
    losses = {"gru": (1.0, 1.0), "rnn": (0.5, 2.3), "lstm": (1.0, 1.0)}
    swept = own_results(
        {"cell": list(losses)},
        lambda values, repeat: (losses[values["cell"]][0], {"validation_loss": losses[values["cell"]][1]}),
    )
    assert lost(swept, "cell") == ["rnn"]
    assert chosen(swept, "throughput") != "cell=rnn"
    assert chosen(swept, "throughput", any_accuracy=True) == "cell=rnn"


@pytest.mark.parametrize(
    ("aim", "how", "best"),
    [
        ("throughput", {}, "adamw"),
        ("memory", {}, "adamw"),
        ("cost", {}, "adamw"),
        ("accuracy", {}, "rmsprop"),
        ("throughput", {"target": 0.1}, "sgd"),  # a target asks for those that reach it
        ("throughput", {"any_accuracy": True}, "sgd"),
    ],
)
def test_no_advice_names_a_choice_that_loses_accuracy_unless_that_is_asked_for(
    aim: str, how: dict[str, Any], best: str
) -> None:
    prices = ["some cpu=1"] if aim == "cost" else []
    assert chosen(with_prices(of_optimizers(), prices), aim, **how) == f"optimizer={best}"


def test_a_choice_that_loses_accuracy_is_named_with_what_it_loses_and_is_on_the_front_where_that_is_asked_for() -> None:
    advice = advise(of_optimizers(), "throughput")
    (excluded,) = advice.excluded
    assert (excluded.row.factors["optimizer"], excluded.verdict) == ("sgd", "loses")
    assert any("--any-accuracy" in note for note in advice.notes())
    front = advice.frame().set_index("optimizer")["front"]
    assert (front["adamw"], front["sgd"]) == ("yes", "")
    asked = advise(of_optimizers(), "throughput", any_accuracy=True)
    assert asked.loss is not None
    assert asked.loss.contrast.centre == pytest.approx(-0.85, abs=0.0005)
    assert asked.frame().set_index("optimizer").loc["sgd", "front"] == "yes"


def test_what_a_larger_batch_loses_is_said_with_what_it_gains() -> None:
    advice = advise(noisy_along("batch_per_rank", {16: (100.0, 0.97), 128: (300.0, 0.86)}), "throughput")
    assert advice.loss is not None
    assert advice.loss.pair.trial.factors["batch_per_rank"] == 128
    assert (advice.loss.pair.base.factors["batch_per_rank"], advice.loss.contrast.centre) == (16, pytest.approx(-0.11))
    assert advice.notes()[0].startswith("The best configuration loses accuracy: test accuracy -11.")


def test_no_race_for_speed_is_won_by_a_choice_that_loses_accuracy() -> None:
    beaten, _ = race_for(make_table(of_optimizers(repeats=5, target_accuracy=0.1)), "throughput")
    assert "sgd" not in [row.factors["optimizer"] for row in beaten]
    swept = of_optimizers(repeats=5)
    swept.until = Until(race=True, aim="throughput", budget=None)
    found = decide(make_table(swept), ["optimizer"], race_for)
    assert [row.factors["optimizer"] for row in found.beaten] == ["sgd", "adam", "rmsprop"]


def test_no_front_has_a_choice_that_loses_accuracy_and_the_figure_names_it() -> None:
    table = make_table(of_optimizers())
    front = front_of(table)
    assert "sgd" not in [row.factors["optimizer"] for row in front.best]
    drawn = tradeoff_chart(table)
    assert drawn is not None
    assert drawn.notes[-1] == "Left out of the front because they lose accuracy: optimizer sgd (test accuracy 0.111)."
