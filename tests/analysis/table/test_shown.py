"""Which columns of a table are shown."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.notes import held_fixed
from dmls_ray.analysis.table.shown import MOST_COLUMNS, shown_columns
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import own_results, results

AXES = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


def table(rate: Any = lambda values, repeat: 100.0 + repeat) -> Table:
    return make_table(results(AXES, rate), ["world_size", "batch_per_rank"])


def heads(of: Table, *names: str) -> list[str]:
    return [column.head.removesuffix(" [95%]") for column in shown_columns(of, names).columns]


def test_a_page_has_the_columns_that_answer() -> None:
    shown = heads(table())
    assert len(shown) <= MOST_COLUMNS
    assert shown[:2] == ["world_size", "batch_per_rank"]
    assert {"images/s", "speed-up", "tensor MiB", "test acc.", "n"} <= {*shown}
    assert not {"global_batch", "outcome", "train acc."} & {*shown}


def test_what_is_left_out_is_named_with_the_command_that_shows_it() -> None:
    (note,) = shown_columns(table()).notes("results/my sweep")
    assert note.startswith("Not shown: global_batch, ")
    assert note.endswith("; dmls-ray table 'results/my sweep' --columns all has them.")
    assert shown_columns(table(), ["all"]).notes("x") == []


def test_outcomes_are_shown_where_a_run_failed() -> None:
    shown = heads(table(lambda values, repeat: None if values["batch_per_rank"] == 32 else 100.0))
    assert "outcome" in shown
    assert len(shown) <= MOST_COLUMNS


def test_columns_are_chosen_by_their_heads_or_by_the_names_of_their_metrics() -> None:
    assert heads(table(), "all") == [column.head.removesuffix(" [95%]") for column in table().columns]
    factors = ["world_size", "batch_per_rank", "global_batch"]
    assert heads(table(), "train acc.", "images_per_s") == [*factors, "train acc.", "images/s"]


def test_a_column_that_the_table_lacks_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(
        ConfigError, match=r"--columns image/s: .* did you mean images/s\? choose from world_size, .*, or"
    ):
        shown_columns(table(), ["image/s"])


def test_fields_that_were_changed_one_at_a_time_are_one_column() -> None:
    changes = [{}, {"dropout": 0.3}, {"l1": 0.1}, {"label_smoothing": 0.1, "l1": 0.1}]
    found = make_table(results({"batch_per_rank": 16}, lambda values, repeat: 100.0, variants=changes))
    assert {"dropout", "l1", "label_smoothing"} <= set(heads(found))
    found.changed = ("dropout", "l1", "label_smoothing")
    shown = shown_columns(found)
    assert heads(found)[0] == "change"
    assert set(found.frame(shown.columns)["change"]) == {
        "baseline",
        "dropout=0.3",
        "l1=0.1",
        "label_smoothing=0.1 l1=0.1",
    }
    assert not {"dropout", "l1", "label_smoothing"} & {*heads(found), *shown.left_out}
    assert {"dropout", "l1", "label_smoothing"} <= set(heads(found, "all"))


def test_a_batch_that_is_equal_in_all_rows_is_in_the_line_of_what_was_held_fixed() -> None:
    found = make_table(results({"batch_per_rank": 16, "accum_steps": [1, 2]}, lambda values, repeat: 100.0))
    assert {"batch_per_rank", "global_batch"} <= set(found.varied)
    assert "batch_per_rank" not in heads(found)
    assert "batch_per_rank 16" in held_fixed(found)
    assert "global_batch" not in held_fixed(found)


def test_columns_that_are_equal_in_all_rows_go_before_those_that_differ() -> None:
    runs = results({"lr": [0.1, 0.2], "batch_per_rank": 16}, lambda values, repeat: 100.0)
    for record in runs.records:
        # As a function of a user reports them, beyond the columns of a page.
        record.metrics |= {f"of_lr_{number}": record.config["lr"] * number for number in range(1, 9)}
        record.metrics["same"] = 1.0
    found = make_table(runs)
    shown = heads(found)
    assert len(shown) <= MOST_COLUMNS
    assert shown[:2] == ["lr", "images/s"]
    assert "same" not in shown
    assert {"of_lr_1", "of_lr_2"} <= set(shown)


def test_the_column_that_answers_stays_whatever_it_is() -> None:
    """A function without a rate is compared by the seconds of its runs, which other tables can spare."""
    runs = own_results(
        {"depth": [1, 2]},
        lambda values, repeat: (
            values["depth"] + repeat,
            {f"of_{name}": values["depth"] + repeat for name in range(9)},
        ),
    )
    assert heads(make_table(runs))[:2] == ["depth", "s/run"]
