"""Which runs of a plan are done, and which have to be run again."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.config.options import Options
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.execution.planning import finished_run_ids, make_plan, plan_sweep
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload
from tests.records.test_model import record

PLAN = make_plan({"world_size": 1, "batch_per_rank": 16}, repeats=4)


def of_run(number: int, **changes: object) -> RunRecord:
    return record(run_id=PLAN.runs[number].run_id, repeat=number, **changes)


def finished(records: list[RunRecord], **options: object) -> set[int]:
    ids = finished_run_ids(PLAN, records, Options(**options))  # type: ignore[arg-type]
    return {number for number, run in enumerate(PLAN.runs) if run.run_id in ids}


def test_a_run_that_was_skipped_or_killed_is_not_done() -> None:
    records = [of_run(0), of_run(1, outcome=Outcome.SKIPPED), of_run(2, outcome=Outcome.KILLED)]
    assert finished(records) == {0}


def test_what_a_search_has_run_is_not_measured_and_what_it_has_stopped_is_not_whole() -> None:
    records = [of_run(0), of_run(1, mode="search"), of_run(2, mode="search", metrics={"stopped_epoch": 1})]
    assert finished(records) == {0}
    assert finished(records, mode="search") == {0, 1, 2}
    assert finished(records, mode="search", scheduler="none") == {0, 1}


class Plain(Workload):
    """A workload without traces and accuracies."""

    name, config = "plain", RuntimeConfig


@pytest.mark.parametrize(
    ("chosen", "axes", "options", "message"),
    [
        (Plain(), {"seed": [1]}, {"trace": 1}, "--trace 1: runs of plain write no traces; leave it out"),
        (Plain(), {"seed": [1]}, {"aim": "accuracy"}, "--aim accuracy needs test accuracies, and plain has none"),
        (None, {"batch_per_rank": [16, 32]}, {"aim": "time-to-accuracy"}, "add --target-accuracy 0.9, say"),
        (
            None, {"batch_per_rank": [16], "target_accuracy": [0.2, 0.3]}, {"aim": "time-to-accuracy"},
            "--target-accuracy 0.2 0.3: --aim time-to-accuracy needs one target; give",
        ),
    ],
)  # fmt: skip
def test_what_no_run_can_have_is_refused_before_anything_starts(
    chosen: Workload | None, axes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_sweep(axes, Options(race="aim" in options, **options), chosen or workload("classification"))
