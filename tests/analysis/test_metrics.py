from __future__ import annotations

import math
from typing import Any

import pytest

from dmls_ray.analysis.metrics import MEMORY_METRICS, hardly_differs, limit_of, quantity_of, table_metrics
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.common_metrics import memory_metric
from dmls_ray.records.metrics import is_loss
from tests.analysis.samples import results, set_value


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


def test_losses_have_geometric_means_and_numbers_with_a_name_of_the_users_arithmetic_ones() -> None:
    shown = [name for name in table_metrics() if is_loss(name)]
    assert {"test_loss", "validation_loss", "last_loss", "first_loss"} < {*shown}
    means = {estimate([1.0, 4.0], quantity_of(name)).centre for name in shown}
    assert means == {2.0}
    assert estimate([1.0, 4.0], quantity_of("val_loss")).centre == 2.5


def test_the_time_of_a_start_is_averaged_as_other_times_are() -> None:
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0)
    for record, seconds in zip(runs.records, (0.16, 0.02, 0.02), strict=True):
        record.metrics["overhead_s"] = seconds
    (row,) = make_table(runs).rows
    assert row.value_of("overhead_s") == pytest.approx(0.04)
    assert (row.estimates["overhead_s"].low or 0) > 0


def runs_of(**fields: Any) -> Results:
    """Runs of batch 16 and 32 with these fields instead of the memory of tensors."""
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics.pop("tensor_mem_mib", None)
        for name, value in fields.items():
            set_value(record, name, value)
    return runs


EVERY = dict.fromkeys(MEMORY_METRICS, 10.0)


@pytest.mark.parametrize(
    ("measured", "metric"),
    [
        *(({name: 10.0}, name) for name in MEMORY_METRICS),
        (EVERY, "tensor_mem_mib"),
        (EVERY | {"tensor_mem_mib": None}, "device_mem_mib"),
        ({"peak_mem_mib": 877.0}, ""),  # of a process that served others
    ],
)
def test_what_a_table_knows_of_memory_is_what_it_is_compared_by(measured: dict[str, Any], metric: str) -> None:
    table = make_table(runs_of(**measured, peak_mem_mib=877.0) if metric else runs_of(**measured))
    assert memory_metric(table.rows) == metric
    # The resident set is a detail where the memory of the run is known.
    assert ("peak MiB" in table.frame()) == (metric == "")


def test_trials_are_compared_by_the_memory_that_all_have() -> None:
    runs = runs_of(host_mem_mib=10.0)
    for record in runs.records:
        if record.config["batch_per_rank"] == 32:
            record.metrics["tensor_mem_mib"] = 5.0
    assert memory_metric(make_table(runs).rows) == "host_mem_mib"


def test_a_ratio_that_is_of_no_use_is_no_difference_and_a_process_varies_by_some_mib() -> None:
    assert hardly_differs([100.0, 101.0], "tensor_mem_mib")
    assert not hardly_differs([1.0, 1.1], "tensor_mem_mib")
    assert hardly_differs([1.0, 3.0], "host_mem_mib")
    assert not hardly_differs([10.0, 20.0], "host_mem_mib")
    assert not hardly_differs([], "")
