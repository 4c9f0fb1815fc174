from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.ranks import rank_spread_chart, step_times_chart, utilization_chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.model import STEP_QUANTILES
from tests.analysis.figures.reading import panels, points
from tests.analysis.samples import results


def runs_of(samples: int = 2, **axes: Any) -> Results:
    """Rank 1 has steps of 20 to 29 ms instead of 10 to 19, and 3 ms of a forward pass instead of 1."""
    runs = results({"batch_per_rank": 16, "world_size": 2} | axes, lambda values, repeat: 100.0)
    for record in runs.records:
        for rank in record.ranks:
            rank.step_ms_quantiles = [10.0 * (1 + rank.rank) + place for place in range(len(STEP_QUANTILES))]
            rank.metrics["forward_ms"] = 1.0 + 2 * rank.rank
            busy = [60.0 + 20 * rank.rank, 100.0]
            rank.utilization = {"at_s": [0.5, 1.02 + rank.rank / 100][:samples], "cpu_percent": busy[:samples]}
    return runs


@pytest.mark.parametrize(
    ("chart", "x", "y", "measured"),
    [
        (step_times_chart, "optimizer step (ms)", "steps within this time (fraction)",
         {15.0 + place: share for place, share in enumerate(STEP_QUANTILES)}),
        (rank_spread_chart, "rank", "forward pass (% above mean over ranks)", {"0": -50.0, "1": 50.0}),
        (utilization_chart, "time since the start of a run (s)", "CPU utilization (% of a core)",
         {0.5: 70.0, 1.02: 99.81}),
    ],
)  # fmt: skip
def test_a_trial_is_what_its_ranks_measured_in_bench_mode(chart: Any, x: str, y: str, measured: Any) -> None:
    runs = runs_of()
    (panel,) = panels(chart(make_table(runs)), 1)
    assert (panel.x.label, panel.y.label) == (x, y)
    assert points(panel, "measured") == pytest.approx(measured, abs=0.01)
    for record in runs.records:
        record.mode = "search"
    assert chart(make_table(runs)) is None


def test_utilization_is_drawn_while_every_rank_of_every_run_trains() -> None:
    runs = runs_of()
    for record in runs.records:
        record.metrics["total_s"] = 2.2 + record.repeat
        for rank in record.ranks:
            rank.utilization = {"at_s": [0.5, 1.0, 1.5, 2.0, 2.5], "cpu_percent": [90.0, 80.0, 70.0, 60.0, 5.0]}
    _, slow, _ = runs.records
    for rank in slow.ranks:
        rank.utilization["at_s"].append(3.0)
        rank.utilization["cpu_percent"].append(1.0)
    (panel,) = panels(utilization_chart(make_table(runs)), 1)
    assert points(panel, "measured") == {0.5: 90.0, 1.0: 80.0, 1.5: 70.0, 2.0: 60.0}, "to the end of the first run"
    runs.records[0].metrics["total_s"] = 1.7
    (panel,) = panels(utilization_chart(make_table(runs)), 1)
    assert list(points(panel, "measured")) == [0.5, 1.0, 1.5], "without what follows the time of a run"
    for record in runs.records:
        del record.metrics["total_s"]
    (panel,) = panels(utilization_chart(make_table(runs)), 1)
    assert max(points(panel, "measured")) == 2.5, "where the time of a run is unknown, all samples count"


def test_ranks_whose_samples_drift_apart_have_one_line_to_the_end_of_the_shortest() -> None:
    runs = runs_of()
    for record in runs.records:
        record.metrics["total_s"] = 300.0
        for rank in record.ranks:
            period = 2.0 + rank.rank / 100
            at_s = [period * count for count in range(1, 140)]
            rank.utilization = {"at_s": at_s, "cpu_percent": [50.0 + 100 * rank.rank] * len(at_s)}
    runs.records[0].ranks[0].utilization = {"at_s": [0.4], "cpu_percent": [1.0]}
    (panel,) = panels(utilization_chart(make_table(runs)), 1)
    drawn = points(panel, "measured")
    assert max(drawn) == pytest.approx(278, abs=2.1)
    assert set(drawn.values()) == {110.0}, "of five ranks: the one that was sampled once does not count"


def test_one_rank_has_no_spread_and_one_sample_is_no_course() -> None:
    assert rank_spread_chart(make_table(runs_of(world_size=1))) is None
    assert utilization_chart(make_table(runs_of(samples=1))) is None
