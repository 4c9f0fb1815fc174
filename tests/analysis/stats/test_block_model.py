from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import bartlett, studentized_range, t, ttest_rel

from dmls_ray.analysis.stats.block_model import MIN_OWN_VARIANCE, BlockModel, Contrast, is_decided
from dmls_ray.analysis.stats.looks import Looks, critical_value, error_of_look, next_look
from dmls_ray.analysis.stats.scaling_laws import lack_of_fit


def blocks(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def drawn(trials: int, count: int, *, deviation: float = 0.1, seed: int = 0) -> dict[str, dict[int, float]]:
    random = np.random.default_rng(seed)
    machine = random.normal(0, 0.3, count)
    return {str(trial): blocks(*np.exp(machine + random.normal(trial, deviation, count))) for trial in range(trials)}


def half_width(model: BlockModel, trial: str, base: str) -> float:
    return model.against(trial, base).half_width


def residuals_of(table: np.ndarray) -> np.ndarray:
    """What is beyond the means of trials (rows) and of blocks."""
    return table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()


def test_two_trials_have_the_interval_of_the_paired_t_test_of_their_logarithms() -> None:
    values = drawn(2, 6)
    found = BlockModel(values, is_ratio=True).against("1", "0")
    logs = [np.log(list(row.values())) for row in values.values()]
    expected = ttest_rel(logs[1], logs[0]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert found.n == 6


def test_several_trials_have_tukeys_intervals_of_the_residual_variance_of_all() -> None:
    values = drawn(4, 5, seed=3)
    # Without the blocks' own effect the design is that of Tukey's test but for the degrees of freedom.
    table = np.log([list(row.values()) for row in values.values()])
    residuals = residuals_of(table)
    expected = studentized_range.ppf(0.95, 4, 12) * math.sqrt((residuals**2).sum() / 12 / 5)
    found = BlockModel(values, is_ratio=True).against("3", "1")
    own = np.var(table[3] - table[1], ddof=1)
    assert own < 2 * (residuals**2).sum() / 12  # else the interval would be wider
    assert found.half_width == pytest.approx(expected)
    assert found.centre == pytest.approx(math.exp(table[3].mean() - table[1].mean()))


def test_from_8_blocks_on_a_pair_has_the_variance_of_its_own_differences() -> None:
    quiet, loud = drawn(2, MIN_OWN_VARIANCE, deviation=0.01), drawn(2, MIN_OWN_VARIANCE, deviation=0.5, seed=1)
    model = BlockModel({"a": quiet["0"], "b": quiet["1"], "c": loud["0"], "d": loud["1"]}, is_ratio=True)
    assert 20 < half_width(model, "d", "c") / half_width(model, "b", "a") < 100


def test_a_pair_whose_differences_happen_to_agree_has_the_variance_of_all() -> None:
    values = drawn(4, 3) | {"a": blocks(1.0, 2.0, 3.0), "b": blocks(1.1, 2.2, 3.3)}
    alone = BlockModel({name: values[name] for name in "ab"}, is_ratio=True)
    assert half_width(alone, "b", "a") == pytest.approx(0, abs=1e-9)
    assert half_width(BlockModel(values, is_ratio=True), "b", "a") > 0.2


@pytest.mark.parametrize("is_unequal", [False, True])
def test_two_trials_that_are_equal_in_every_block_have_no_interval_of_the_noise_of_others(is_unequal: bool) -> None:
    same = blocks(0.95, 0.90, 0.92, 0.96)
    other = blocks(0.9, 0.95, 0.6, 0.92) if is_unequal else blocks(0.94, 0.91, 0.93, 0.95)
    values = {"a": same, "b": same}
    alone = half_width(BlockModel(values, is_ratio=False, resolution=0.01, families=3), "b", "a")
    model = BlockModel(values | {"c": other}, is_ratio=False, resolution=0.01)
    low, high = model.against("b", "a").ends
    assert low < 0.0 < -low == high  # half a step of the values
    assert high == pytest.approx(alone, rel=1e-2)  # both at about 1 - 0.05 / 3
    assert half_width(model, "c", "a") > 1.2 * high


def test_a_noisy_pair_is_not_narrowed_by_quiet_ones() -> None:
    values = drawn(8, 3, deviation=0.02)
    loud = {"c": blocks(1.0, 2.0, 1.0), "d": blocks(2.0, 1.0, 3.0)}
    own = np.var(np.log([2.0, 0.5, 3.0]), ddof=1)
    assert half_width(BlockModel(values | loud, is_ratio=True), "d", "c") > math.sqrt(own / 3) * 3


def test_of_trials_that_clearly_differ_in_noise_a_noisy_pair_has_its_separate_variances() -> None:
    quiet, loud = drawn(6, 4, deviation=0.001), drawn(2, 4, deviation=0.3, seed=1)
    table = np.log([list(row.values()) for row in [*quiet.values(), *loud.values()]])
    residuals = residuals_of(table)
    variances = (residuals**2).sum(axis=1)[6:] * 8 / 7 / 3
    own = np.var(table[6] - table[7], ddof=1)
    degrees = variances.sum() ** 2 / ((variances**2).sum() / 3)  # Welch-Satterthwaite
    critical = t.ppf((1 + 0.95 ** (1 / 28)) / 2, degrees)  # Sidak's level for 28 pairs
    found = BlockModel(quiet | {"c": loud["0"], "d": loud["1"]}, is_ratio=True).against("c", "d")
    assert found.half_width == pytest.approx(critical * math.sqrt(max(own, variances.sum()) / 4), rel=0.02)


def test_noise_differs_where_bartletts_test_of_the_residuals_says_so_at_the_level_of_a_fifth() -> None:
    found = set()
    for seed in range(100):
        random = np.random.default_rng(seed)
        deviations = np.exp(random.normal(0, 0.5, 4))
        residuals = residuals_of(random.normal(size=(4, 5)) * deviations[:, None])
        values = {str(trial): blocks(*row) for trial, row in enumerate(residuals)}
        is_unequal = BlockModel(values, is_ratio=False)._noise.by_trial is not None
        assert is_unequal == (bartlett(*residuals).pvalue < 0.2)
        found.add(is_unequal)
    assert found == {False, True}


def test_a_trial_without_noise_among_noisy_ones_has_an_interval() -> None:
    noisy = blocks(1.0, 1.3, 0.8, 1.1)
    inverse = {block: 1 / value for block, value in noisy.items()}  # so the blocks have no effect of their own
    model = BlockModel({"a": noisy, "b": inverse, "c": blocks(1.0, 1.0, 1.0, 1.0)}, is_ratio=True)
    assert half_width(model, "c", "a") > 0.1


def test_a_trial_that_shares_no_block_leaves_the_intervals_of_others_as_they_are() -> None:
    for seed in range(20):
        values = drawn(4, 3, seed=seed)
        alone = {"alone": {block: 1.0 + 0.1 * block for block in (7, 8, 9)}}
        before, after = (BlockModel(item, is_ratio=True)._noise for item in (values, values | alone))
        assert (before.by_trial is None) == (after.by_trial is None)
        assert after.variance == pytest.approx(before.variance)


def test_pairs_are_compared_in_the_blocks_that_have_both_and_those_that_share_none_are_not() -> None:
    model = BlockModel({"a": blocks(1.0, 2.0, 4.0), "b": {1: 4.0, 2: 8.0, 3: 1.0}, "c": {7: 1.0}}, is_ratio=True)
    found = model.against("b", "a")
    assert (found.n, found.centre) == (2, pytest.approx(2.0))
    assert model.against("c", "a") is None


def test_missing_runs_leave_the_residual_variance_unbiased() -> None:
    random = np.random.default_rng(5)
    variances = []
    for seed in range(300):
        values = drawn(4, 6, deviation=0.1, seed=seed)
        for row in values.values():
            row.pop(int(random.integers(0, 6)))
        variances.append(BlockModel(values, is_ratio=True)._noise.variance)
    assert np.mean(variances) == pytest.approx(0.01, rel=0.05)


def test_fewer_than_three_blocks_have_no_interval_unless_the_value_is_exact() -> None:
    values = {"a": blocks(2.0, 2.0), "b": blocks(3.0, 3.0)}
    assert BlockModel(values, is_ratio=True).against("b", "a").low is None
    exact = BlockModel(values, is_ratio=True, is_exact=True).against("b", "a")
    assert exact.low == exact.high == pytest.approx(1.5)


def test_the_more_trials_could_have_been_picked_the_wider_the_interval_of_a_pair() -> None:
    assert critical_value(2, 10) == pytest.approx(2.23, abs=0.01)  # Student's t
    assert critical_value(4, 10) == pytest.approx(4.33 / math.sqrt(2), abs=0.01)  # tables of the studentized range
    assert critical_value(100, 10) > critical_value(8, 10)


@pytest.mark.parametrize("looks", ["none", "open", "last", "race"])
@pytest.mark.parametrize("of_pair_alone", [False, True])
@pytest.mark.parametrize("blocks", [3, 4, 12])
def test_measures_of_one_answer_share_its_errors(looks: Looks, of_pair_alone: bool, blocks: int) -> None:
    def errors(count: int) -> float:
        value = critical_value(2, blocks - 1, blocks, looks, of_pair_alone=of_pair_alone, families=count)
        return 2 * t.sf(value, blocks - 1)

    assert errors(4) == pytest.approx(errors(1) / 4)


@pytest.mark.parametrize(
    ("low", "high", "decided"),
    [(1.01, 1.9, True), (0.5, 0.99, True), (0.985, 1.015, True), (0.96, 1.05, True), (0.9, 1.1, False)],
)
def test_a_comparison_is_decided_if_it_excludes_1_or_is_as_good_as_1_or_narrow(
    low: float, high: float, decided: bool
) -> None:
    item = Contrast(1.0, low, high, 5, math.log(high / low) / 2)
    assert is_decided(item, null=1, precision=0.05, equivalent=0.02) is decided
    assert not is_decided(Contrast(1.0, None, None, 2, None), null=1, precision=0.05, equivalent=0.02)


def test_an_interval_ends_at_the_largest_possible_difference() -> None:
    values = {"a": blocks(0.9, 0.2, 0.95), "b": blocks(0.1, 0.9, 0.2), "c": blocks(0.9, 0.9, 0.1)}
    for limit in (1.0, math.inf):
        model = BlockModel(values, is_ratio=False, limit=limit)
        mean = model.combined({"a": 0.5, "b": 0.5, "c": -1.0})
        ends = [*model.against("a", "b").ends, *mean.ends]
        assert [abs(end) <= 1 for end in ends] == [limit == 1.0] * 4
        assert half_width(model, "a", "b") > 1, "how rough it is does not change"


@pytest.mark.parametrize("looks", ["none", "last"])
def test_the_half_width_after_more_blocks_is_that_of_as_many_blocks_of_the_same_noise(looks: Looks) -> None:
    noise = np.log(1.1) * np.array([1, -1, 1, -1, -1, 1, -1, 1] * 5)

    def after(count: int) -> Contrast:
        values = {"a": blocks(*np.exp(noise[:count])), "b": blocks(*[1.0] * count)}
        return BlockModel(values, is_ratio=True, looks=looks).against("a", "b")

    assert after(12).half_width_after(40) == pytest.approx(after(40).half_width, rel=0.05)


@pytest.mark.parametrize(("count", "families"), [(5, 1), (12, 1), (30, 1), (12, 2)])
def test_the_smallest_difference_is_found_in_8_of_10_sweeps_that_have_it(count: int, families: int) -> None:
    random = np.random.default_rng(0)

    def contrast(differences: np.ndarray) -> Contrast:
        values = {"a": blocks(*np.exp(differences)), "b": blocks(*[1.0] * len(differences))}
        return BlockModel(values, is_ratio=True, families=families).against("a", "b")

    noise = random.normal(0, 0.05, 20)
    noise *= 0.05 / noise.std(ddof=1)
    size = contrast(noise).half_width_after(count, 0.8)
    found = [contrast(random.normal(size, 0.05, count)).low > 1 for _ in range(1000)]
    assert np.mean(found) == pytest.approx(0.79, abs=0.04)


def test_the_last_look_spends_what_those_before_it_have_left() -> None:
    assert error_of_look(3, is_last=True) == pytest.approx(0.07)
    assert error_of_look(12, is_last=True) == pytest.approx(0.07 * 0.8)
    assert error_of_look(30, is_last=True) == pytest.approx(0.07 * 0.4)


def test_the_errors_of_all_looks_together_are_bounded() -> None:
    looks = itertools.islice(itertools.accumulate(itertools.repeat(3), lambda blocks, _: next_look(blocks)), 40)
    assert 0.069 < sum(map(error_of_look, looks)) <= 0.07


CURVED = (1.0, 1.59, 1.59 * 1.44, 1.59 * 1.44 * 1.23)


def misfit(factors: tuple[float, ...], noise: float, blocks: int, seed: int = 0) -> float:
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


def test_a_curve_is_refuted_from_three_blocks_on_and_a_line_without_noise_is_not() -> None:
    assert misfit(CURVED, 0.03, 12) < 1e-4
    assert misfit(CURVED, 0.0, 3) == 0.0
    assert misfit((1.0, 1.5, 2.25, 3.375), 0.0, 3) == 1.0


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize(("blocks", "points"), [(3, 4), (5, 3), (12, 5)])
def test_a_straight_line_is_refuted_at_most_as_often_as_the_level_says(blocks: int, points: int, unequal: bool) -> None:
    random = np.random.default_rng(7)
    places = np.arange(points) - (points - 1) / 2
    beside = np.eye(points) - np.outer(places, places) / (places @ places) - 1 / points
    spread = np.where(np.arange(points) == 0, 5.0, 1.0) if unequal else np.ones(points)
    found = [lack_of_fit((random.normal(size=(blocks, points)) * spread) @ beside) for _ in range(1000)]
    for level in (0.05, 0.2):
        assert np.mean(np.array(found) < level) <= level + 0.03
