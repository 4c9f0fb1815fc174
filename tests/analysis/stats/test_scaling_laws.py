from __future__ import annotations

import numpy as np
import pytest

from dmls_ray.analysis.stats.scaling_laws import amdahl, fits, universal


def points(law: object, sizes: tuple[int, ...], *found: float) -> dict[int, dict[int, float]]:
    """Speed-ups of three blocks, each a bit faster than the one before."""
    return {size: {block: law(size, *found) * 1.01**block for block in range(3)} for size in sizes}  # type: ignore[operator]


def test_the_share_that_speed_ups_were_made_with_is_found_again() -> None:
    (fit, _) = fits(points(amdahl, (2, 4, 8), 0.1))
    assert fit.by_block[0] == pytest.approx([0.1])
    assert fit.curve(8).centre == pytest.approx(amdahl(8, 0.1), rel=0.02)


def test_the_universal_law_separates_contention_from_coherency_and_may_fall() -> None:
    (fit,) = fits(points(universal, (2, 4, 8, 16), 0.05, 0.02))
    assert fit.by_block[0] == pytest.approx([0.05, 0.02], abs=1e-6)
    assert fit.curve(16).centre < fit.curve(8).centre


def test_a_law_needs_one_world_size_more_than_parameters_and_amdahls_a_problem_that_stays_the_same() -> None:
    def names(sizes: tuple[int, ...], *, strong: bool = True) -> list[str]:
        return [fit.name for fit in fits(points(amdahl, sizes, 0.1), strong=strong)]

    assert names((2, 4, 8)) == ["Amdahl's law", "universal scalability law"]
    assert names((2, 4)) == ["Amdahl's law"]
    assert names((2,)) == names(()) == []
    assert names((2, 4, 8), strong=False) == ["universal scalability law"]


def test_a_law_that_is_far_from_what_was_measured_does_not_hold() -> None:
    # Two ranks at half the speed of one: no share that cannot be done in parallel explains that.
    assert fits({2: {0: 0.5, 1: 0.51, 2: 0.49}, 4: {0: 0.3, 1: 0.31, 2: 0.29}}) == []


@pytest.mark.parametrize("serial", [0.0, 0.3])
def test_the_interval_of_a_curve_holds_the_law_95_times_in_100_at_its_bound_too(serial: float) -> None:
    random = np.random.default_rng(7)
    covered = count = 0
    for _ in range(200):
        noisy = {size: dict(enumerate(amdahl(size, serial) * random.lognormal(0, 0.03, 4))) for size in (2, 4)}
        for fit in fits(noisy):
            speed_up = fit.curve(8)
            covered, count = covered + (speed_up.low <= amdahl(8, serial) <= speed_up.high), count + 1
    assert count >= 190
    assert 0.9 <= covered / count <= 0.99


def test_blocks_that_lack_a_world_size_are_left_out_and_without_any_nothing_is_fitted() -> None:
    (fit,) = fits({2: {0: 1.9, 1: 1.8}, 4: {0: 3.0, 2: 2.0}})
    assert len(fit.by_block) == 1
    assert fits({2: {0: 1.9}, 4: {1: 3.0}}) == []
