from __future__ import annotations

from dmls_ray.analysis.figures.utilization import chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, notes, panels, points, series
from tests.analysis.samples import results


def runs_of(samples: int = 2, **quantities: float) -> Results:
    """Runs of 1, 2 and 3 seconds; the processor of rank 1 is 20 % busier, and later runs busier than earlier."""
    runs = results({"batch_per_rank": 16, "world_size": 2}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics["total_s"] = 1.0 + record.repeat
        for rank in record.ranks:
            at_s = [0.5 * (place + 1) for place in range(samples)]
            busy = [50.0 + 20 * rank.rank + record.repeat + place for place in range(samples)]
            rank.utilization = {"at_s": at_s, "cpu_percent": busy}
            rank.utilization |= {name: [value] * samples for name, value in quantities.items()}
    return runs


def test_the_run_whose_time_is_in_the_middle_is_drawn_as_the_mean_of_its_ranks() -> None:
    runs = runs_of()
    (busy,) = panels(chart(make_table(runs)), 1)
    assert points(busy, "measured") == {0.5: 61.0, 1.0: 62.0}
    assert busy.x.label == "time since the start of the run (s)"
    assert busy.y.label == "CPU utilization, mean over ranks (% of a core)"
    middle = next(record for record in runs.records if record.repeat == 1)
    assert [point.runs for point in series(busy, "measured").points] == [(middle.run_id,)] * 2


def test_a_gpu_has_a_separate_panel() -> None:
    _, gpu = panels(chart(make_table(runs_of(gpu_percent=80.0))), 2)
    assert points(gpu, "measured") == {0.5: 80.0, 1.0: 80.0}
    assert gpu.y.label == "GPU utilization, mean over ranks (%)"


def test_a_rank_that_was_sampled_less_often_shortens_the_line() -> None:
    runs = runs_of(samples=3)
    for record in runs.records:
        record.ranks[1].utilization = {name: values[:2] for name, values in record.ranks[1].utilization.items()}
    (busy,) = panels(chart(make_table(runs)), 1)
    assert list(points(busy, "measured")) == [0.5, 1.0]


def test_trials_that_were_sampled_once_have_no_line_and_are_counted() -> None:
    assert chart(make_table(runs_of(samples=1))) is None
    runs = results({"batch_per_rank": [16, 32, 64], "world_size": 2}, lambda values, repeat: 100.0)
    for record in runs.records:
        samples = 2 if record.config["batch_per_rank"] == 64 else 1
        for rank in record.ranks:
            rank.utilization = {"at_s": [0.5, 1.0][:samples], "cpu_percent": [50.0] * samples}
    found = chart(make_table(runs))
    (busy,) = panels(found, 1)
    assert names(busy) == ["batch_per_rank 64"]
    assert notes(found)[0] == "1 of 3 trials are drawn; the table has all of them."
