from __future__ import annotations

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.axis import all_groups_along_axis, group_by_other_factors
from tests.analysis.samples import results


def test_what_counts_with_one_value_alone_follows_from_the_axis() -> None:
    variants = ({"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.9})
    table = make_table(results({"batch_per_rank": 16}, lambda values, repeat: 100.0, variants=variants))
    assert len(all_groups_along_axis(table.rows, "optimizer", table.fixed_batch_field)) == 1
    assert len(group_by_other_factors(table.rows, {"optimizer"})) == 2
