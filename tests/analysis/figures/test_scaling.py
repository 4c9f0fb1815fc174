from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures import scaling
from dmls_ray.analysis.figures.scaling import scaling_chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.scaling_laws import Fit, Points, Refusal
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, notes, panels, points, series
from tests.analysis.samples import results

SPEED_UP = {1: 1.0, 2: 1.6, 4: 2.0}


GEOMETRIC = (100 * 101 * 102) ** (1 / 3)


def rate(values: dict[str, Any], repeat: int) -> float:
    return (100 + repeat) * SPEED_UP[values["world_size"]]


def runs_of(**axes: Any) -> Results:
    return results({"batch_per_rank": 16, "world_size": [1, 2, 4], **axes}, rate)


def test_throughput_and_efficiency_are_drawn_with_their_ideal() -> None:
    throughput, efficiency = panels(scaling_chart(make_table(runs_of())), 2)
    assert throughput.y.label == "throughput (images/s)"
    assert points(throughput, "measured") == pytest.approx({1: GEOMETRIC, 2: 1.6 * GEOMETRIC, 4: 2 * GEOMETRIC})
    assert points(throughput, "ideal") == pytest.approx({1: GEOMETRIC, 4: 4 * GEOMETRIC})
    assert points(efficiency, "measured") == pytest.approx({1: 1.0, 2: 0.8, 4: 0.5})
    assert points(efficiency, "ideal") == {1: 1.0, 4: 1.0}
    assert series(throughput, "measured").connected
    assert series(throughput, "ideal").dashed
    assert series(throughput, "ideal").same_as == "measured"


def test_the_title_names_the_fixed_batch() -> None:
    for fixed, scaling_kind in (("batch_per_rank", "weak scaling"), ("global_batch", "strong scaling")):
        found = scaling_chart(make_table(results({fixed: 64, "world_size": [1, 2, 4]}, rate)))
        assert found is not None
        assert scaling_kind in found.title


def test_without_a_measured_world_size_one_there_is_neither_ideal_nor_efficiency() -> None:
    (throughput,) = panels(scaling_chart(make_table(runs_of(world_size=[2, 4]))), 1)
    assert names(throughput) == ["measured"]


def test_a_world_size_that_was_out_of_memory_is_a_cross_without_a_height() -> None:
    runs = results(
        {"batch_per_rank": 16, "world_size": [1, 2, 4]},
        lambda values, repeat: None if values["world_size"] == 4 else rate(values, repeat),
    )
    throughput, efficiency = panels(scaling_chart(make_table(runs)), 2)
    assert points(throughput, "oom") == {4: None}
    assert points(throughput, "ideal") == pytest.approx({1: GEOMETRIC, 2: 2 * GEOMETRIC})
    assert points(efficiency, "measured") == pytest.approx({1: 1.0, 2: 0.8})


def test_a_fit_is_a_dashed_curve_with_its_interval_over_the_sizes_that_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Points] = []

    def fitting(points: Points, *, strong: bool) -> list[Fit | Refusal]:
        assert not strong
        given.append(points)
        # By each block's own law every further rank is worth 0.4, 0.5 and 0.6 of the first.
        return [Fit("half", lambda ranks, worth: 1 + (ranks - 1) * worth, {}, ((0.4,), (0.5,), (0.6,)))]

    monkeypatch.setattr(scaling, "fits", fitting)
    throughput, efficiency = panels(scaling_chart(make_table(runs_of())), 2)
    assert given == [{2: pytest.approx({0: 1.6, 1: 1.6, 2: 1.6}), 4: pytest.approx({0: 2.0, 1: 2.0, 2: 2.0})}]
    mean = (2.2 * 2.5 * 2.8) ** (1 / 3)
    curve = points(throughput, "half")
    assert (min(curve), max(curve)) == (1, 4)
    assert curve[4] == pytest.approx(mean * GEOMETRIC)
    assert points(efficiency, "half")[4] == pytest.approx(mean / 4)
    last = series(efficiency, "half").points[-1]
    assert last.low is not None
    assert last.high is not None
    assert last.low < 2.2 / 4 < 2.8 / 4 < last.high
    assert series(throughput, "half").dashed


def test_what_is_not_fitted_is_said_with_the_reason() -> None:
    assert notes(scaling_chart(make_table(runs_of(world_size=[1, 2])))) == [
        "No curve by Amdahl's law: it is about a problem that stays the same, and global_batch grew with the ranks.",
        "No curve by universal scalability law: it needs 3 world sizes above 1, and 1 were measured.",
    ]
    once = scaling_chart(make_table(results({"global_batch": 64, "world_size": [1, 2, 4]}, rate, repeats=1)))
    assert "No curve by Amdahl's law: it has no interval with fewer than 3 blocks." in notes(once)
