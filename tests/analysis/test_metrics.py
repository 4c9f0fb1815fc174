from __future__ import annotations

import math

import pytest

from dmls_ray.analysis.metrics import limit_of, quantity_of
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import own_results, results


@pytest.mark.parametrize(
    ("name", "values", "quantity", "limit"),
    [
        ("test_accuracy", [0.5], "share", 1.0),
        ("accuracy_gap", [0.5], "value", 2.0),
        ("images_per_s", [5.0], "rate", math.inf),
        ("top5_accuracy", [0.5, 1.0], "share", 1.0),
        ("top5_accuracy", [50.0, 97.0], "value", math.inf),  # in percent
        ("bits", [0.5], "value", math.inf),
    ],
)
def test_an_accuracy_of_a_user_is_a_share_where_its_values_are(
    name: str, values: list[float], quantity: str, limit: float
) -> None:
    assert quantity_of(name, values) == quantity
    assert limit_of(name, values) == limit


def test_no_interval_of_an_accuracy_or_of_a_time_leaves_what_is_possible() -> None:
    levels = {1: (0.99, 0.6, 0.98), 2: (0.1, 0.9, 0.99)}
    runs = own_results(
        {"depth": [1, 2]}, lambda values, repeat: (1.0, {"top5_accuracy": levels[values["depth"]][repeat]})
    )
    for row in make_table(runs).rows:
        low, high = row.estimates["top5_accuracy"].ends
        assert 0 <= low < high <= 1


def test_the_time_of_a_start_is_averaged_as_other_times_are() -> None:
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0)
    for record, seconds in zip(runs.records, (0.16, 0.02, 0.02), strict=True):
        record.metrics["overhead_s"] = seconds
    (row,) = make_table(runs).rows
    assert row.value_of("overhead_s") == pytest.approx(0.04)
    assert (row.estimates["overhead_s"].low or 0) > 0
