from __future__ import annotations

from dmls_ray.analysis.figures.step_parts import chart
from dmls_ray.analysis.table.build import make_table
from tests.analysis.figures.reading import names, notes, panels, points
from tests.analysis.samples import results
from tests.analysis.trials.test_steps import ALONE, with_parts


def test_the_parts_of_each_trials_steps_stand_on_each_other_and_what_bounds_them_is_said() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: values["batch_per_rank"] * 1000.0)
    with_parts(runs, ALONE)
    found = chart(make_table(runs))
    (panel,) = panels(found, 1)
    assert panel.stacked
    assert "communication not overlapped with compute" not in names(panel), "one rank communicates nothing"
    assert sum(points(panel, name)["16"] or 0 for name in names(panel)) == 1.0
    assert notes(found) == [
        "Bound by what a step takes at any batch (launch-bound): batch_per_rank=16; batch_per_rank=32."
    ]
