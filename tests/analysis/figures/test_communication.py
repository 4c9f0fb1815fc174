from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.communication import chart, exposed_share, hidden_share
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.epoch_and_rank import RankRecord
from tests.analysis.figures.reading import panels, points, series
from tests.analysis.samples import results

SLOW = {"forward_ms": 3.0, "backward_ms": 5.0, "comm_ms": 5.0, "overlap_ms": 1.0, "exposed_comm_ms": 4.0}
FAST = {"forward_ms": 2.0, "backward_ms": 4.0, "comm_ms": 3.0, "overlap_ms": 1.0, "exposed_comm_ms": 2.0}
RANKS = [RankRecord(rank=0, metrics=FAST), RankRecord(rank=1, metrics=SLOW)]


def runs_of(**axes: Any) -> Results:
    runs = results({"batch_per_rank": 16, "world_size": [1, 2, 4], **axes}, lambda values, repeat: 100.0)
    for record in runs.records:
        if record.config["world_size"] > 1:
            record.ranks = RANKS
    return runs


def test_shares_are_those_of_the_rank_that_waits_least() -> None:
    assert exposed_share(RANKS) == pytest.approx(2 / (2 + 6))
    assert hidden_share(RANKS) == pytest.approx(1 / 3)


def test_shares_go_along_the_ranks_from_two_on() -> None:
    exposed, hidden = panels(chart(make_table(runs_of())), 2)
    assert exposed.x.label == "world_size (ranks)"
    assert points(exposed, "measured") == pytest.approx({2: 0.25, 4: 0.25})
    assert points(hidden, "measured") == pytest.approx({2: 1 / 3, 4: 1 / 3})
    assert series(exposed, "measured").connected


def test_one_trial_with_timers_or_none_has_no_such_figure() -> None:
    assert chart(make_table(runs_of(world_size=[1, 2]))) is None
    assert chart(make_table(results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 1.0))) is None
