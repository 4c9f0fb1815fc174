from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.drawn_trials import limit_items, limit_rows, trial_label, trial_labels
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from tests.analysis.samples import own_results, results


def table_of(axes: dict[str, Any], **more: Any) -> Table:
    return make_table(results(axes, lambda values, repeat: 100.0, **more))


def test_a_label_of_many_fields_has_those_that_are_not_at_their_default_and_ranks_and_batch() -> None:
    table = table_of({"batch_per_rank": 16}, variants=({}, {"dropout": 0.3}, {"l1": 0.1, "lr": 0.01}))
    labels = sorted(trial_labels(table, table.rows))
    assert labels == ["dropout 0.3", "lr 0.001, dropout None, l1 0", "lr 0.01, l1 0.1"], "one at its defaults has all"
    table = table_of({"batch_per_rank": [16, 32], "world_size": [1, 2], "lr": [0.001, 0.1]})
    first, second, *_ = trial_labels(table, table.rows)
    assert (first, second) == ("world_size 1, batch_per_rank 16", "world_size 1, batch_per_rank 16, lr 0.1")
    table = make_table(own_results({"lr": [1, 2], "b": [1, 2], "c": [1, 2]}, lambda values, repeat: (1.0, {})))
    assert trial_label(table.rows[0], ["lr", "b", "c"]) == "lr 1, b 1, c 1", "fields of the user have no default"


def test_a_trial_of_changes_is_named_by_its_change() -> None:
    table = table_of({"batch_per_rank": [16, 32]}, variants=({}, {"dropout": 0.3}))
    table.changed = ("dropout",)
    assert sorted(trial_labels(table, table.rows)) == [
        "baseline, batch_per_rank 16", "baseline, batch_per_rank 32", "dropout=0.3, batch_per_rank 16",
        "dropout=0.3, batch_per_rank 32",
    ]  # fmt: skip


def test_no_more_is_drawn_than_is_distinguishable_and_the_rest_is_counted() -> None:
    assert limit_items(list(range(8)), "trials") == (list(range(8)), [])
    kept, notes = limit_items(list(range(22)), "trials")
    assert kept == [0, 3, 6, 9, 12, 15, 18, 21]
    assert notes == ["8 of 22 trials are drawn; the table has all of them."]
    assert limit_items(list(range(22)), "trials", 2)[0] == [0, 21]


@pytest.mark.parametrize(("best_by", "depths"), [(("bits", True), range(1, 9)), (None, [1, 2, 3, 4, 6, 7, 8, 9])])
def test_the_best_trials_of_a_search_are_drawn_and_else_some_from_first_to_last(best_by: Any, depths: Any) -> None:
    runs = own_results({"depth": list(range(10))}, lambda values, repeat: (1.0, {"bits": values["depth"]}))
    table = make_table(runs, best_by=best_by)
    kept, notes = limit_rows(table, table.rows, lambda row: row.factors["depth"] > 0)
    assert [row.factors["depth"] for row in kept.values()] == list(depths)
    assert notes == ["8 of 10 trials are drawn; the table has all of them."]
