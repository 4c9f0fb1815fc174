"""Notes and columns on the steps of users' code."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.named_layouts import shown_columns
from tests.analysis.samples import script_results


def table_of(seen: dict[str, Any], **axes: Any) -> Table:
    return make_table(script_results(axes or {"lr": [1, 2]}, lambda values, repeat: seen))


def test_every_row_says_how_much_of_a_run_counts() -> None:
    table = table_of({"counted_share": 0.939, "samples_per_s": 10.0})
    assert table.frame()["counted"].tolist() == ["45/50, 93%"] * 2
    assert "counted" in [column.title for column in shown_columns(table).columns]
    assert table.numbers()["counted_share"].tolist() == pytest.approx([0.939] * 2)


def test_the_run_that_counts_least_stands_for_its_trial() -> None:
    runs = script_results(
        {"lr": [1]}, lambda values, repeat: {"counted_share": 1 - repeat / 10, "steps_made": 50 + repeat}
    )
    assert make_table(runs).frame()["counted"].tolist() == ["45/52, 80%"]


def test_of_runs_with_equal_shares_the_one_with_the_median_of_steps_stands_for_the_trial() -> None:
    made = [10, 50, 50, 30, 50]

    def tell(values: dict[str, Any], repeat: int) -> dict[str, Any]:
        share = 0.9999 - repeat / 10_000
        return {"counted_share": share, "steps_made": made[repeat], "counted_steps": made[repeat] - 5}

    runs = script_results({"lr": [1]}, tell, repeats=5)
    assert make_table(runs).frame()["counted"].tolist() == ["45/50, 99%"]


def test_what_is_left_out_is_said_where_it_is_much() -> None:
    assert any(
        "lr=1 (62%)" in note and "tests of the model" in note for note in table_of({"counted_share": 0.62}).notes
    )
    assert not any("tests of the model" in note for note in table_of({"counted_share": 0.8}).notes)


def test_what_may_be_training_is_not_said_to_be_a_test() -> None:
    notes = table_of({"counted_share": 0.62, "time_unknown": "38%"}).notes
    assert any("--evaluation training" in note for note in notes)
    assert not any("(62%)" in note for note in notes)


@pytest.mark.parametrize("name", ["backward_passes", "optimizers"])
def test_passes_and_optimizers_of_a_step_have_a_column_where_they_are_not_one(name: str) -> None:
    head = {"backward_passes": "backward/step", "optimizers": "optimizers"}[name]
    assert head not in table_of({name: 1}).frame()
    assert head in table_of({name: 4}).frame()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"counted_by": "loader"}, "samples of a step are those of the loader."),
        ({"samples_unknown": "loader: 4, model: 3"}, "(loader: 4, model: 3): give --samples."),
        ({"samples_differ": "16"}, "a step was seen to have 16 samples; the number that you gave is used instead."),
        ({"without_steps": "1"}, "rank 1 made no optimizer step"),
        ({"without_effect": "compile=default (no graph)"}, "these settings had no effect: compile=default (no graph)."),
        ({"uneven_steps": "2"}, "made 2x as many as the rank with the fewest in the same time"),
        ({"time_unknown": "another training"}, "times of a step and rates are not known (another training)."),
        ({"same_samples": "true"}, "all ranks were given the same samples"),
        ({"time_unknown": "35%"}, "35% of the time may be tests of the model"),
        ({"product_spread": 0.3}, "MFU may be too high"),
        ({"observer_fault": "read: KeyError: 1"}, "(read: KeyError: 1)"),
    ],
)
def test_what_was_seen_is_said(facts: dict[str, str], words: str) -> None:
    assert any(words in note for note in table_of(facts).notes)


@pytest.mark.parametrize("counted_by", ["loader and model agree", "user", "--samples"])
def test_what_is_sure_is_not_said(counted_by: str) -> None:
    assert not any("samples" in note for note in table_of({"counted_by": counted_by}).notes)


def test_ranks_that_trained_apart_have_no_speed_up() -> None:
    def tell(values: dict[str, Any], repeat: int) -> dict[str, Any]:
        is_apart = values["world_size"] == 2 and values["lr"] == 1
        return {"samples_per_s": 10.0 * values["world_size"], "independent_ranks": "no exchange" if is_apart else ""}

    table = make_table(script_results({"world_size": [1, 2], "lr": [1, 2]}, tell))
    ratios = {(row.world_size, row.factors["lr"]): row.speed_up is not None for row in table.rows}
    assert ratios == {(1, 1): False, (1, 2): False, (2, 1): False, (2, 2): True}
