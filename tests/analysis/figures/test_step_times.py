from __future__ import annotations

from dmls_ray.analysis.figures.step_times import chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES
from tests.analysis.figures.reading import names, panels, series
from tests.analysis.samples import results


def runs_of(slowest: float = 50.0) -> Results:
    """Rank 0's steps take 10 to 19 ms, and the slowest a time of its own; rank 1's a millisecond more a repeat."""
    runs = results({"batch_per_rank": [16, 32], "world_size": 2}, lambda values, repeat: 100.0)
    for record in runs.records:
        for rank in record.ranks:
            rank.step_ms_quantiles = [10.0 + place + rank.rank * record.repeat for place in range(9)] + [slowest]
    return runs


def test_shares_of_the_steps_rise_with_the_milliseconds_they_took() -> None:
    (panel,) = panels(chart(make_table(runs_of())), 1)
    assert (panel.x.label, panel.y.label) == ("optimizer step (ms)", "steps done by then (fraction)")
    steps = series(panel, "batch_per_rank 16")
    assert tuple(point.y for point in steps.points) == STEP_QUANTILES
    # Of 10, 10, 10 and 10, 11, 12 the median is 10.
    assert [point.x for point in steps.points] == [*range(10, 19), 50.0]
    assert steps.connected
    assert not panel.x.log


def test_a_step_far_slower_than_the_others_makes_the_axis_logarithmic() -> None:
    (panel,) = panels(chart(make_table(runs_of(slowest=101.0))), 1)
    assert panel.x.log


def test_trials_without_quantiles_have_no_part_in_it() -> None:
    runs = runs_of()
    for record in runs.records:
        if record.config["batch_per_rank"] == 16:
            for rank in record.ranks:
                rank.step_ms_quantiles = []
    (panel,) = panels(chart(make_table(runs)), 1)
    assert names(panel) == ["batch_per_rank 32"]
    assert chart(make_table(results({"batch_per_rank": 16}, lambda values, repeat: 1.0))) is None
