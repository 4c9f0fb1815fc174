from __future__ import annotations

import pytest

from dmls_ray.analysis.advise.rank import advise
from dmls_ray.analysis.results import Results
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import MACHINE, results

BATCHES = [16, 32, 64]


def estimates(runs: Results, batch: int | None = None) -> list[str]:
    return list(advise(runs, "memory", batch=batch).estimates)


def of_batches(batches: list[int] = BATCHES, **axes: object) -> Results:
    """100 MiB, and one a sample."""
    return results({"batch_per_rank": batches, **axes}, lambda values, repeat: 100.0)


def test_twice_the_largest_batch_is_estimated_without_being_asked_for() -> None:
    assert estimates(of_batches()) == [
        "batch_per_rank 128 needs about 228 MiB of tensor memory, by a line over batch_per_rank 16, 32, 64 that is at "
        "most 0.000 MiB off."
    ]


def test_the_batch_that_was_asked_for_is_estimated_at_each_world_size() -> None:
    first, second = estimates(of_batches(world_size=[1, 2]), 200)
    assert first.startswith("world_size 1: batch_per_rank 200 needs about 300 MiB of tensor memory")
    assert second.startswith("world_size 2: batch_per_rank 200 needs about 300 MiB of tensor memory")


def test_the_batch_that_was_asked_for_is_the_answer_and_the_choice_a_note() -> None:
    advice = advise(of_batches(), "memory", batch=128)
    assert advice.sentence.startswith("batch_per_rank 128 needs about 228 MiB of tensor memory")
    assert advice.notes[-1].startswith("For memory use batch_per_rank=16")
    chosen = advise(of_batches(), "memory")
    assert chosen.sentence == advice.notes[-1]
    assert any(note.startswith("Estimate: batch_per_rank 128") for note in chosen.notes)


@pytest.mark.parametrize(
    ("runs", "batch", "why"),
    [
        (of_batches(), 500, "no estimate for batch_per_rank 500: it is above 4 times the largest that was run."),
        (of_batches(), 8, "no estimate for batch_per_rank 8: the line is of batch_per_rank 16 and more."),
        (
            of_batches([16, 32]),
            64,
            "no estimate for batch_per_rank 64: it takes 3 batches whose tensor memory differs and lies on a line to "
            "5%.",
        ),
        (of_batches([16]), 64, "no estimate for batch_per_rank 64: no two trials differ in it alone."),
    ],
)
def test_what_cannot_be_estimated_says_why(runs: Results, batch: int, why: str) -> None:
    assert estimates(runs, batch) == [why]


@pytest.mark.parametrize(
    ("gpu_mib", "sentence"),
    [
        (
            350,
            "the line reaches the 350 MiB of the GPU at batch_per_rank 200; the allocator needs more than that.",
        ),
        (80_000, "by the line, batch_per_rank 256 still fits into the 80,000 MiB of the GPU."),
    ],
)
def test_the_batch_that_fills_a_gpu_follows_from_what_was_allocated(gpu_mib: int, sentence: str) -> None:
    runs = of_batches()
    for record in runs.records:
        record.device, record.machine = "cuda (Some GPU)", {**MACHINE, "gpu_memory_mib": [gpu_mib]}
        assert record.metrics.get("tensor_mem_mib") is not None
        record.metrics["device_mem_mib"] = record.metrics["tensor_mem_mib"] + 50
    tensors, allocated, full = estimates(runs)
    assert "228 MiB of tensor memory" in tensors
    assert "278 MiB of allocated memory of the GPU" in allocated
    assert full == sentence


def test_other_objectives_estimate_no_batch() -> None:
    assert not advise(of_batches(), "throughput").estimates
    with pytest.raises(
        ConfigError, match="--batch 64 means nothing for --for throughput; leave it out, or give --for m"
    ):
        advise(of_batches(), "throughput", batch=64)
    with pytest.raises(ConfigError, match="--batch 0 is out of range"):
        advise(of_batches(), "memory", batch=0)


def test_a_difference_in_memory_that_is_of_no_use_makes_no_configuration_worse() -> None:
    runs = of_batches()
    for record in runs.records:
        record.metrics["tensor_mem_mib"] = {16: 100.0, 32: 101.0, 64: 150.0}[record.config["batch_per_rank"]]
    advice = advise(runs, "memory")
    assert advice.best is not None
    assert advice.best.row.factors["batch_per_rank"] == 16
    assert [item.row.factors["batch_per_rank"] for item in advice.indistinguishable] == [32]
    assert [item.row.factors["batch_per_rank"] for item in advice.worse] == [64]
