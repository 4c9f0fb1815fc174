from __future__ import annotations

import numpy as np
import pytest

from dmls_ray.analysis.stats.scaling_laws import Fit, Refusal, amdahl, fits, universal


def points(law: object, sizes: tuple[int, ...], *found: float) -> dict[int, dict[int, float]]:
    """Speed-ups of three blocks, each a bit faster than the one before."""
    return {size: {block: law(size, *found) * 1.01**block for block in range(3)} for size in sizes}  # type: ignore[operator]


def test_the_share_that_speed_ups_were_made_with_is_found_again() -> None:
    (fit, _) = fits(points(amdahl, (2, 4, 8), 0.1))
    assert fit.by_block[0] == pytest.approx([0.1])
    assert fit.curve(8).values[0] == pytest.approx(amdahl(8, 0.1))


def test_the_universal_law_separates_contention_from_coherency_and_may_fall() -> None:
    (_, fit) = fits(points(universal, (2, 4, 8, 16), 0.05, 0.02))
    assert fit.by_block[0] == pytest.approx([0.05, 0.02], abs=1e-6)
    assert fit.curve(16).median < fit.curve(8).median


def test_fewer_world_sizes_than_parameters_and_one_more_are_refused() -> None:
    _, universals = fits(points(amdahl, (2, 4), 0.1))
    assert universals == Refusal("universal scalability law", "it needs 3 world sizes above 1, and 2 were measured")
    reasons = [refused.reason for refused in fits(points(amdahl, (2,), 0.1))]
    assert reasons[0] == "it needs 2 world sizes above 1, and 1 were measured"
    assert all(isinstance(item, Refusal) for item in fits({}))


def test_a_law_that_is_far_from_what_was_measured_is_refused() -> None:
    # Two ranks at half the speed of one: no share that cannot be done in parallel explains that.
    (refused, _) = fits({2: {0: 0.5, 1: 0.51, 2: 0.49}, 4: {0: 0.3, 1: 0.31, 2: 0.29}})
    assert "at world_size 2 it would be a speed-up of 1.00, and 0.50 [" in refused.reason


@pytest.mark.parametrize("serial", [0.0, 0.3])
def test_the_interval_of_a_curve_holds_the_law_95_times_in_100_at_its_bound_too(serial: float) -> None:
    random = np.random.default_rng(7)
    covered = count = 0
    for _ in range(200):
        noisy = {size: dict(enumerate(amdahl(size, serial) * random.lognormal(0, 0.03, 4))) for size in (2, 4)}
        fit, _ = fits(noisy)
        if isinstance(fit, Fit):
            speed_up = fit.curve(8)
            covered, count = covered + (speed_up.low <= amdahl(8, serial) <= speed_up.high), count + 1
    assert count >= 190
    assert 0.9 <= covered / count <= 0.99


def test_amdahls_law_is_not_fitted_to_a_problem_that_grew() -> None:
    (refused, _) = fits(points(amdahl, (2, 4), 0.1), strong=False)
    assert "global_batch grew" in refused.reason


def test_blocks_that_lack_a_world_size_are_left_out_and_without_any_nothing_is_fitted() -> None:
    (fit, _) = fits({2: {0: 1.9, 1: 1.8}, 4: {0: 3.0, 2: 2.0}})
    assert len(fit.by_block) == 1
    assert fits({2: {0: 1.9}, 4: {1: 3.0}})[0] == Refusal("Amdahl's law", "no block has all world sizes")
