from __future__ import annotations

from typing import Any

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.groups import all_groups_along_axis, group_by_other_factors
from dmls_ray.analysis.trials.trial import Trial
from tests.analysis.samples import results


def rows_of(axes: dict[str, Any], **more: Any) -> tuple[list[Trial], str]:
    table = make_table(results(axes, lambda values, repeat: 100.0, **more))
    return table.rows, table.fixed_batch_field


def values(groups: list[list[Trial]], *names: str) -> list[list[tuple[Any, ...]]]:
    return [[tuple(row.factors[name] for name in names) for row in group] for group in groups]


def test_along_world_size_the_global_batch_follows_where_the_batch_of_a_rank_is_held() -> None:
    rows, fixed_batch_field = rows_of({"batch_per_rank": [16, 32], "world_size": [1, 2]})
    assert values(all_groups_along_axis(rows, "world_size", fixed_batch_field), "batch_per_rank", "world_size") == [
        [(16, 1), (16, 2)],
        [(32, 1), (32, 2)],
    ]


def test_along_a_batch_both_batches_go_and_the_ranks_stay() -> None:
    rows, fixed_batch_field = rows_of({"batch_per_rank": [16, 32], "world_size": [1, 2]})
    assert values(all_groups_along_axis(rows, "batch_per_rank", fixed_batch_field), "world_size", "batch_per_rank") == [
        [(1, 16), (1, 32)],
        [(2, 16), (2, 32)],
    ]


def test_a_row_without_a_neighbour_stands_alone() -> None:
    variants = ({"dropout": 0.3}, {"lr": 0.1})
    rows, fixed_batch_field = rows_of({"batch_per_rank": 16}, variants=variants)
    assert values(all_groups_along_axis(rows, "dropout", fixed_batch_field), "dropout", "lr") == [
        [(0.3, 0.001)],
        [(None, 0.1)],
    ]


def test_what_counts_with_one_value_alone_follows_from_the_axis() -> None:
    variants = ({"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.9})
    rows, fixed_batch_field = rows_of({"batch_per_rank": 16}, variants=variants)
    assert len(all_groups_along_axis(rows, "optimizer", fixed_batch_field)) == 1
    assert len(group_by_other_factors(rows, {"optimizer"})) == 2
