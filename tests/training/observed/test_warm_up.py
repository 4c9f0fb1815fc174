"""When the warm-up of observed steps is over."""

from __future__ import annotations

import pytest

from dmls_ray.training.observed.warm_up import WarmUp


@pytest.mark.parametrize(
    ("seconds", "is_over"),
    [
        ([1.0, 1.0, 1.0, 1.0], False),  # too few
        ([9.0, 1.0, 1.0, 1.0, 1.0], True),
        ([9.0, 9.0, 9.0, 1.0, 1.0, 9.0], False),
        ([1.0, 0.1, 1.0, 1.0, 1.0], True),  # one is short by chance, as after a loader has read ahead
        ([9.0, 9.0, 5.0, 1.0, 0.9], True),
        ([0.9, 1.0, 9.0, 5.0, 4.0], False),
    ],
)
def test_a_warm_up_ends_once_two_steps_take_as_long_as_the_fast_ones(seconds: list[float], is_over: bool) -> None:
    warm_up = WarmUp()
    warm_up.seconds += seconds
    assert warm_up.is_settled == is_over
