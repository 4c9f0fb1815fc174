from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.results import load
from dmls_ray.analysis.table.uneven_steps import uneven_step_ratio
from dmls_ray.records.model import RunRecord
from tests.analysis.samples import results
from tests.conftest import PROJECT


def timed(record: RunRecord, step_ms: list[float], warmup_steps: int | None = 5) -> RunRecord:
    """The record with what a run with these counted steps measures."""
    record.metrics["steps"] = len(step_ms) + (warmup_steps or 0)
    if warmup_steps is not None:
        record.metrics["warmup_steps"] = warmup_steps
    record.metrics["train_s"] = sum(step_ms) / 1e3
    record.metrics["step_ms_p50"] = sorted(step_ms)[len(step_ms) // 2]
    return record


def ratio(step_ms: list[float], **changes: Any) -> float | None:
    (record,) = results({"batch_per_rank": [16]}, lambda *_: 100.0, repeats=1).records
    return uneven_step_ratio(timed(record, step_ms, **changes))


@pytest.mark.parametrize(
    ("step_ms", "expected"),
    [
        ([*[1.4] * 128, 548.0, 586.0], 7.2),  # a change of mode at the start of two epochs of three
        ([*[1.0] * 5, 100.0], 17.5),  # few steps, and a pause
        ([*[1.0] * 90, *[30.0] * 10], 3.9),  # a test or a checkpoint inside an epoch
    ],
)
def test_what_takes_as_long_as_the_steps_and_is_none_is_noticed(step_ms: list[float], expected: float) -> None:
    assert ratio(step_ms) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    "step_ms",
    [
        [1.0] * 100,
        [*[1.0] * 199, 12.0, 40.0],  # garbage collection, a slow first step
        [1.0, 1.0, 9.0],  # too few steps to know
        [1.0],
        [0.8, 1.6] * 50,  # batches whose images are prepared with those of the batch before
        [5.0],
    ],
)
def test_slow_steps_are_no_reason_for_a_note(step_ms: list[float]) -> None:
    assert ratio(step_ms) is None


def test_the_time_between_steps_of_a_users_function_is_no_reason_for_a_note() -> None:
    assert ratio([*[1.0] * 50, 500.0], warmup_steps=None) is None


@pytest.mark.parametrize(
    "folder",
    sorted(path.parent for path in (PROJECT / "results" / "reference").glob("*/runs.jsonl")),
    ids=lambda folder: folder.name,
)
def test_no_run_of_the_reference_sweeps_is_named_in_error(folder: Any) -> None:
    # Records without between_s timed the change of mode of an exported model as a part of a step.
    records = [
        record
        for record in load(folder).records
        if record.metrics.get("between_s") is not None or record.config.get("quantization") != "qat"
    ]
    assert records
    assert [record.run_id for record in records if uneven_step_ratio(record) is not None] == []
