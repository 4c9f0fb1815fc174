from __future__ import annotations

from typing import Any

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.groups import all_groups_along_axis, group_by_other_factors
from dmls_ray.analysis.trials.trial import Trial
from tests.analysis.samples import results


def rows_of(axes: dict[str, Any], **more: Any) -> tuple[list[Trial], str]:
    table = make_table(results(axes, lambda values, repeat: 100.0, **more))
    return table.rows, table.fixed_batch_field


def test_what_counts_with_one_value_alone_follows_from_the_axis() -> None:
    variants = ({"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.9})
    rows, fixed_batch_field = rows_of({"batch_per_rank": 16}, variants=variants)
    assert len(all_groups_along_axis(rows, "optimizer", fixed_batch_field)) == 1
    assert len(group_by_other_factors(rows, {"optimizer"})) == 2
