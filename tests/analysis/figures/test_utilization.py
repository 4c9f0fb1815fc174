from __future__ import annotations

from dmls_ray.analysis.figures.utilization import chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, panels, points, series
from tests.analysis.samples import results


def runs_of(looks: int = 2, **quantities: float) -> Results:
    """Runs of 1, 2 and 3 seconds; the processor of rank 1 is 20 % busier, and later runs busier than earlier."""
    runs = results({"batch_per_rank": 16, "world_size": 2}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics["total_s"] = 1.0 + record.repeat
        for rank in record.ranks:
            at_s = [0.5 * (place + 1) for place in range(looks)]
            busy = [50.0 + 20 * rank.rank + record.repeat + place for place in range(looks)]
            rank.utilization = {"at_s": at_s, "cpu_percent": busy} | {
                name: [value] * looks for name, value in quantities.items()
            }
    return runs


def test_the_run_whose_time_is_in_the_middle_is_drawn_as_the_mean_of_its_ranks() -> None:
    runs = runs_of()
    (busy,) = panels(chart(make_table(runs)), 1)
    assert points(busy, "measured") == {0.5: 61.0, 1.0: 62.0}
    assert (busy.x.label, busy.y.label) == (
        "time since the start of the run (s)", "CPU utilization, mean over ranks (% of a core)"
    )  # fmt: skip
    middle = next(record for record in runs.records if record.repeat == 1)
    assert series(busy, "measured").runs == [(middle.run_id,)] * 2


def test_a_gpu_has_a_separate_panel() -> None:
    _, gpu = panels(chart(make_table(runs_of(gpu_percent=80.0))), 2)
    assert points(gpu, "measured") == {0.5: 80.0, 1.0: 80.0}
    assert gpu.y.label == "GPU utilization, mean over ranks (%)"


def test_a_rank_that_was_looked_at_less_often_shortens_the_line() -> None:
    runs = runs_of(looks=3)
    for record in runs.records:
        record.ranks[1].utilization = {name: values[:2] for name, values in record.ranks[1].utilization.items()}
    (busy,) = panels(chart(make_table(runs)), 1)
    assert list(points(busy, "measured")) == [0.5, 1.0]
    assert names(busy) == ["measured"]


def test_runs_that_were_looked_at_once_or_in_a_search_have_no_such_figure() -> None:
    assert chart(make_table(runs_of(looks=1))) is None
    searched = runs_of()
    for record in searched.records:
        record.mode = "search"
    assert chart(make_table(searched)) is None


def test_trials_that_were_too_short_to_be_looked_at_twice_are_counted_and_the_one_that_is_left_is_named() -> None:
    runs = results({"batch_per_rank": [16, 32, 64], "world_size": 2}, lambda values, repeat: 100.0)
    for record in runs.records:
        batch = record.config["batch_per_rank"]
        record.metrics["total_s"] = 0.5 if batch == 16 else 2.0
        looked = 2 if batch == 64 else 1
        for rank in record.ranks:
            rank.utilization = {"at_s": [0.5, 1.0][:looked], "cpu_percent": [50.0] * looked}
    found = chart(make_table(runs))
    (busy,) = panels(found, 1)
    assert names(busy) == ["batch_per_rank 64"]
    assert found is not None
    assert found.notes[0].startswith("2 of 3 trials have no line: their runs ended before")
    assert len(found.notes) == 2


def test_short_trials_are_counted_among_more_trials_than_distinguishable_lines() -> None:
    runs = results({"batch_per_rank": list(range(1, 12)), "world_size": 1}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics["total_s"] = 0.5 if record.config["batch_per_rank"] == 11 else 2.0
        for rank in record.ranks:
            rank.utilization = {"at_s": [0.5, 1.0], "cpu_percent": [50.0, 50.0]}
    found = chart(make_table(runs))
    assert found is not None
    assert found.notes[0].startswith("8 of 10 trials are drawn, spread evenly")
    assert found.notes[1].startswith("1 of 11 trials have no line: ")
