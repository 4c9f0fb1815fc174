from __future__ import annotations

import numpy as np
import pytest

from dmls_ray.analysis.stats.lack_of_fit import lack_of_fit

CURVED = (1.0, 1.59, 1.59 * 1.44, 1.59 * 1.44 * 1.23)


def misfit(factors: tuple[float, ...], noise: float, blocks: int, seed: int = 0) -> float | None:
    random = np.random.default_rng(seed)
    values = np.log(factors) + noise * random.normal(size=(blocks, len(factors)))
    centred = np.arange(len(factors)) - (len(factors) - 1) / 2
    slopes = values @ centred / (centred @ centred)
    return lack_of_fit(values - values.mean(axis=1, keepdims=True) - np.outer(slopes, centred))


def test_one_contrast_is_tested_by_students_t() -> None:
    from scipy.stats import ttest_1samp

    curvature = np.array([0.3, 0.1, 0.25, -0.1])
    residuals = np.outer(curvature, [1.0, -2.0, 1.0]) / np.sqrt(6)
    assert lack_of_fit(residuals) == pytest.approx(ttest_1samp(curvature, 0).pvalue)


def test_a_curve_is_refuted_and_a_line_without_noise_is_not() -> None:
    assert (misfit(CURVED, 0.03, 12) or 0.0) < 1e-4
    assert misfit(CURVED, 0.0, 3) == 0.0
    assert misfit((1.0, 1.5, 2.25, 3.375), 0.0, 3) == 1.0


def test_two_blocks_do_not_tell_how_well_a_line_fits() -> None:
    assert misfit(CURVED, 0.03, 2) is None


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize(("blocks", "points"), [(3, 4), (5, 3), (12, 5)])
def test_a_straight_line_is_refuted_at_most_as_often_as_the_level_says(blocks: int, points: int, unequal: bool) -> None:
    random = np.random.default_rng(7)
    places = np.arange(points) - (points - 1) / 2
    beside = np.eye(points) - np.outer(places, places) / (places @ places) - 1 / points
    spread = np.where(np.arange(points) == 0, 5.0, 1.0) if unequal else np.ones(points)
    found = [lack_of_fit((random.normal(size=(blocks, points)) * spread) @ beside) or 0.0 for _ in range(1000)]
    for level in (0.05, 0.2):
        assert np.mean(np.array(found) < level) <= level + 0.03
