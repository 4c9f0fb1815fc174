from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dmls_ray.analysis.figures.scaling import chart
from dmls_ray.analysis.frames import Results
from dmls_ray.analysis.stats import Estimate, estimate
from dmls_ray.analysis.tables import make_table
from tests.analysis.figures.reading import names, panels, points, series
from tests.analysis.samples import results

SPEED_UP = {1: 1.0, 2: 1.6, 4: 2.0}


def rate(values: dict[str, Any], repeat: int) -> float:
    return (100 + repeat) * SPEED_UP[values["world_size"]]


def runs_of(**axes: Any) -> Results:
    return results({"batch_per_rank": 16, "world_size": [1, 2, 4], **axes}, rate)


def test_throughput_and_efficiency_stand_beside_their_ideal() -> None:
    throughput, efficiency = panels(chart(make_table(runs_of())), 2)
    assert throughput.y.label == "throughput (images/s)"
    assert points(throughput, "measured") == pytest.approx({1: 101, 2: 161.6, 4: 202})
    assert points(throughput, "ideal") == pytest.approx({1: 101, 4: 404})
    assert points(efficiency, "measured") == pytest.approx({1: 1.0, 2: 0.8, 4: 0.5})
    assert points(efficiency, "ideal") == {1: 1.0, 4: 1.0}
    assert series(throughput, "measured").connected
    assert series(throughput, "ideal").dashed
    assert series(throughput, "ideal").same_as == "measured"


def test_efficiency_is_paired_by_block_so_that_what_drifts_for_both_cancels() -> None:
    _, efficiency = panels(chart(make_table(runs_of())), 2)
    measured = series(efficiency, "measured")
    assert measured.low == pytest.approx([1.0, 0.8, 0.5])
    assert measured.high == pytest.approx([1.0, 0.8, 0.5])


def test_each_batch_is_a_line_with_an_ideal_of_its_own() -> None:
    throughput, efficiency = panels(chart(make_table(runs_of(batch_per_rank=[16, 32]))), 2)
    assert names(throughput) == ["batch_per_rank 16", "ideal", "batch_per_rank 32", "ideal"]
    assert names(efficiency) == ["batch_per_rank 16", "batch_per_rank 32", "ideal"]


def test_the_title_says_what_is_held() -> None:
    weak = chart(make_table(runs_of()))
    strong = chart(make_table(results({"global_batch": 64, "world_size": [1, 2, 4]}, rate)))
    assert weak is not None
    assert "weak scaling" in weak.title
    assert strong is not None
    assert "strong scaling" in strong.title


def test_without_a_measured_world_size_one_there_is_neither_ideal_nor_efficiency() -> None:
    (throughput,) = panels(chart(make_table(runs_of(world_size=[2, 4]))), 1)
    assert names(throughput) == ["measured"]


def test_a_world_size_that_was_out_of_memory_is_a_cross_without_a_height() -> None:
    runs = results(
        {"batch_per_rank": 16, "world_size": [1, 2, 4]},
        lambda values, repeat: None if values["world_size"] == 4 else rate(values, repeat),
    )
    throughput, efficiency = panels(chart(make_table(runs)), 2)
    assert points(throughput, "oom") == {4: None}
    assert points(throughput, "ideal") == pytest.approx({1: 101, 2: 202})
    assert points(efficiency, "measured") == pytest.approx({1: 1.0, 2: 0.8})


class Half:
    """A law by which every rank but the first is worth half a rank."""

    name = "half"

    def curve(self, world_size: float) -> Estimate:
        middle = 1 + (world_size - 1) / 2
        return estimate([middle - 0.1, middle, middle + 0.1])


def test_a_fit_is_a_dashed_curve_with_its_interval_over_the_sizes_that_were_measured() -> None:
    given: list[Mapping[int, Mapping[int, float]]] = []

    def fitting(points: Mapping[int, Mapping[int, float]]) -> list[Half]:
        given.append(points)
        return [Half()]

    throughput, efficiency = panels(chart(make_table(runs_of()), fitting), 2)
    assert list(given[0]) == [1, 2, 4]
    assert given[0][4] == pytest.approx({0: 200.0, 1: 202.0, 2: 204.0})
    curve = points(throughput, "half")
    assert (min(curve), max(curve)) == (1, 4)
    assert curve[4] == pytest.approx(2.5 * 101)
    assert points(efficiency, "half")[4] == pytest.approx(2.5 / 4)
    band = series(efficiency, "half, 95%")
    assert (band.kind, band.low[-1], band.high[-1]) == ("band", pytest.approx(2.4 / 4), pytest.approx(2.6 / 4))
    assert series(throughput, "half").dashed


def test_a_fit_without_an_interval_is_a_curve_alone() -> None:
    class Bare(Half):
        def curve(self, world_size: float) -> Estimate:
            return estimate([world_size])

    throughput, _ = panels(chart(make_table(runs_of()), lambda points: [Bare()]), 2)
    assert names(throughput) == ["measured", "ideal", "half"]


def test_one_world_size_and_a_search_have_no_scaling() -> None:
    assert chart(make_table(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0))) is None
    searched = runs_of()
    for record in searched.records:
        record.mode = "search"
    assert chart(make_table(searched)) is None
