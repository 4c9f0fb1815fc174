"""Which number stands for the memory of a trial, and the memory of a batch that was not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dmls_ray.analysis.memory import MEMORY, hardly_differs, memory_limit, memory_line, memory_metric
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.trial import Trial
from tests.analysis.samples import results, set_value


def runs_of(**fields: Any) -> Results:
    """Runs of batch 16 and 32 with these fields instead of the memory of tensors."""
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics.pop("tensor_mem_mib", None)
        for name, value in fields.items():
            set_value(record, name, value)
    return runs


EVERY = dict.fromkeys(MEMORY, 10.0)


@pytest.mark.parametrize(
    ("measured", "metric"),
    [
        *(({name: 10.0}, name) for name in MEMORY),
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


def test_ranks_on_another_machine_than_the_one_described_have_no_known_limit() -> None:
    runs = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.machine, record.device = {**record.machine, "memory_mib": 1000}, "cpu"
        for rank in record.ranks:
            rank.machine = "elsewhere" if rank.rank else "lab"
    rows = make_table(runs).rows
    assert next(memory_limit(row) for row in rows if row.world_size == 1) == ("limit: host memory", 1000.0)
    assert next(memory_limit(row) for row in rows if row.world_size == 2) is None


def rows_of(size: Callable[[int], float], batches: list[int]) -> list[Trial]:
    """Trials of these batches with this memory each."""
    runs = results({"batch_per_rank": batches}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics["tensor_mem_mib"] = size(record.config["batch_per_rank"])
    return make_table(runs).rows


def test_the_memory_of_a_batch_that_was_not_run_follows_from_a_line_and_its_residual_is_given() -> None:
    bent = {16: 26.5, 32: 41.5, 64: 74.0}
    line = memory_line(rows_of(bent.__getitem__, [*bent]), "batch_per_rank", "tensor_mem_mib")
    assert line is not None
    assert line.at(128) == pytest.approx(137.5, abs=1.0)
    assert line.missed == pytest.approx(max(abs(line.at(batch) - size) for batch, size in bent.items()))
    assert line.describe(128) == (
        "batch_per_rank 128 needs about 137 MiB of tensor memory, by a line over batch_per_rank 16, 32, 64 that is at "
        "most 0.54 MiB off"
    )


def test_small_batches_whose_peak_is_the_update_are_left_out_of_the_line() -> None:
    line = memory_line(
        rows_of(lambda batch: max(100.0, 20.0 + batch), [16, 32, 64, 128, 256, 512]), "batch_per_rank", "tensor_mem_mib"
    )
    assert line is not None
    assert list(line.batches) == [128, 256, 512]
    assert line.at(1024) == pytest.approx(1044.0)


@pytest.mark.parametrize(
    ("size", "batches"),
    [
        (lambda batch: 10.0 + batch, [16, 32]),  # nothing to miss
        (lambda batch: batch**2 / 16, [16, 32, 64, 128]),  # not straight
        (lambda batch: 100.0, [16, 32, 64]),  # does not grow
    ],
)
def test_there_is_no_estimate_without_a_line(size: Callable[[int], float], batches: list[int]) -> None:
    assert memory_line(rows_of(size, batches), "batch_per_rank", "tensor_mem_mib") is None


def test_a_line_through_growth_below_the_noise_of_a_process_is_none() -> None:
    for step, is_line in ((1.0, False), (4.0, True)):
        runs = results({"batch_per_rank": [16, 32, 64]}, lambda values, repeat: 100.0)
        for record in runs.records:
            record.metrics["host_mem_mib"] = 1.0 + step * record.config["batch_per_rank"] / 16
        found = memory_line(make_table(runs).rows, "batch_per_rank", "host_mem_mib")
        assert (found is not None) == is_line
