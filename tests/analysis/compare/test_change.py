from __future__ import annotations

import pytest

from dmls_ray.analysis.compare.change import Basis


@pytest.mark.parametrize(("measure", "limit"), [("test_accuracy", 1.0), ("accuracy_gap", 2.0)])
def test_no_interval_of_two_sweeps_goes_beyond_the_largest_possible_difference(measure: str, limit: float) -> None:
    a, b = (
        {str(repeat): value for repeat, value in enumerate(values)} for values in ((0.1, 0.9, 0.2), (0.9, 0.1, 0.8))
    )
    change = Basis(metric=measure).change(a, b, 0.99)
    assert change is not None
    assert (change.interval.low, change.interval.high) == (-limit, limit)
