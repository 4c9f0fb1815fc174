from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.figures.rank_spread import chart
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import panels, points
from tests.analysis.samples import results


def runs_of(**axes: Any) -> Results:
    """Rank 1 takes 6 ms per step instead of 4, computes 3 ms per pass instead of 1, and needs the memory of rank 0."""
    runs = results({"batch_per_rank": 16, "world_size": 2, **axes}, lambda values, repeat: 100.0)
    for record in runs.records:
        for rank in record.ranks:
            rank.metrics["step_ms_p50"], rank.metrics["tensor_mem_mib"] = 4.0 + 2 * rank.rank, 100.0
            rank.metrics["forward_ms"], rank.metrics["backward_ms"] = 0.5 + rank.rank, 0.5 + rank.rank
    return runs


def test_each_rank_is_shown_by_how_far_it_is_from_the_mean_of_its_run() -> None:
    step, computed, memory = panels(chart(make_table(runs_of())), 3)
    assert points(step, "measured") == pytest.approx({"0": -20.0, "1": 20.0})
    assert points(computed, "measured") == pytest.approx({"0": -50.0, "1": 50.0})
    assert points(memory, "measured") == {"0": 0.0, "1": 0.0}
    assert step.y.label == "median optimizer step (% above mean over ranks)"
    assert points(step, "mean over ranks") == {"0": 0.0, "1": 0.0}


def test_only_memory_is_compared_in_a_search() -> None:
    runs = runs_of()
    for record in runs.records:
        record.mode = "search"
    (memory,) = panels(chart(make_table(runs)), 1)
    assert memory.y.label.startswith("tensor memory")
