from __future__ import annotations

from typing import Any

from dmls_ray.analysis.figures.tradeoff import chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, panels, points, series
from tests.analysis.samples import results

OF_BATCH = {16: (100.0, 0.9), 32: (200.0, 0.8), 64: (50.0, 0.7)}
"""Rate and accuracy: 32 is twice as fast as 16, which is more accurate; 64 is beaten by both, and needs most memory."""


def runs_of(**axes: Any) -> Results:
    return results(
        {"batch_per_rank": [16, 32, 64], **axes},
        lambda values, repeat: OF_BATCH[values["batch_per_rank"]][0],
        accuracy=lambda values, repeat: OF_BATCH[values["batch_per_rank"]][1],
    )


def test_trials_on_the_front_are_named_and_the_others_stand_back() -> None:
    time, memory = panels(chart(make_table(runs_of())), 2)
    assert names(time) == names(memory) == ["batch_per_rank 16", "batch_per_rank 32", "not on the front"]
    assert points(time, "batch_per_rank 16") == {20.0: 0.9}
    assert points(time, "batch_per_rank 32") == {10.0: 0.8}
    assert points(time, "not on the front") == {40.0: 0.7}
    assert points(memory, "not on the front") == {164.0: 0.7}
    assert [item.muted for item in time.series] == [False, False, True]
    assert series(time, "not on the front").points[0].text == "batch_per_rank 64, n=3"
    assert (time.x.label, memory.x.label) == ("run time (s)", "tensor memory of a rank (MiB)")


def test_the_interval_of_an_accuracy_is_that_of_the_table() -> None:
    runs = runs_of()
    for record in runs.records:
        record.metrics["test_samples"] = 100
    table = make_table(runs)
    time, _ = panels(chart(table), 2)
    (point,) = series(time, "batch_per_rank 16").points
    value = table.rows[0].estimates["test_accuracy"]
    assert value.low is not None
    assert value.low < 0.9
    assert (point.low, point.high) == (value.low, value.high)


def test_a_front_of_more_trials_than_distinguishable_series_is_one_series() -> None:
    many = {2**place: (100.0 + place, 0.9 - 0.01 * place) for place in range(9)}
    runs = results(
        {"batch_per_rank": list(many)},
        lambda values, repeat: many[values["batch_per_rank"]][0],
        accuracy=lambda values, repeat: many[values["batch_per_rank"]][1],
    )
    time, _ = panels(chart(make_table(runs)), 2)
    assert names(time) == ["on the front"]
    assert series(time, "on the front").points[0].text == "batch_per_rank 1, n=3"


def test_a_search_has_a_front_of_memory_and_accuracy_alone() -> None:
    runs = runs_of()
    for record in runs.records:
        record.mode = "search"
    found = chart(make_table(runs))
    (memory,) = panels(found, 1)
    assert found is not None
    assert "time" not in found.title
    assert names(memory) == ["batch_per_rank 16", "not on the front"]
