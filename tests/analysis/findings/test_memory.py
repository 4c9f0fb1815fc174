from __future__ import annotations

from collections.abc import Callable

import pytest

from dmls_ray.analysis.findings.memory import memory_line
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.trial import Trial
from tests.analysis.samples import results


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
