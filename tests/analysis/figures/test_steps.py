from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.steps import (
    communication_chart,
    step_parts_chart,
)
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.epoch_and_rank import RankRecord
from tests.analysis.figures.reading import names, notes, panels, points, series
from tests.analysis.samples import results
from tests.analysis.trials.test_steps import ALONE, with_parts


def test_the_parts_of_each_trials_steps_stand_on_each_other_and_what_bounds_them_is_said() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: values["batch_per_rank"] * 1000.0)
    with_parts(runs, ALONE)
    found = step_parts_chart(make_table(runs))
    (panel,) = panels(found, 1)
    assert panel.stacked
    assert "communication not overlapped with compute" not in names(panel), "one rank communicates nothing"
    assert sum(points(panel, name)["16"] or 0 for name in names(panel)) == 1.0
    assert notes(found) == [
        "Bound by what a step takes at any batch (launch-bound): batch_per_rank=16; batch_per_rank=32."
    ]


SLOW = {"forward_ms": 3.0, "backward_ms": 5.0, "comm_ms": 5.0, "overlap_ms": 1.0, "exposed_comm_ms": 4.0}
FAST = {"forward_ms": 2.0, "backward_ms": 4.0, "comm_ms": 3.0, "overlap_ms": 1.0, "exposed_comm_ms": 2.0}
RANKS = [RankRecord(rank=0, metrics=FAST), RankRecord(rank=1, metrics=SLOW)]


def with_timers(**axes: Any) -> Results:
    runs = results({"batch_per_rank": 16, "world_size": [1, 2, 4], **axes}, lambda values, repeat: 100.0)
    for record in runs.records:
        if record.config["world_size"] > 1:
            record.ranks = RANKS
    return runs


def test_shares_go_along_the_ranks_from_two_on() -> None:
    exposed, hidden = panels(communication_chart(make_table(with_timers())), 2)
    assert exposed.x.label == "world_size (ranks)"
    assert points(exposed, "measured") == pytest.approx({2: 0.25, 4: 0.25})
    assert points(hidden, "measured") == pytest.approx({2: 1 / 3, 4: 1 / 3})
    assert series(exposed, "measured").connected


def test_one_trial_with_timers_or_none_has_no_such_figure() -> None:
    assert communication_chart(make_table(with_timers(world_size=[1, 2]))) is None
    untimed = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 1.0)
    assert communication_chart(make_table(untimed)) is None
