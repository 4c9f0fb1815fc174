from __future__ import annotations

import itertools

import pytest

from dmls_ray.analysis.stats.looks import error_of_look, next_look


def test_the_last_look_spends_what_those_before_it_have_left() -> None:
    assert error_of_look(3, is_last=True) == pytest.approx(0.07)
    assert error_of_look(12, is_last=True) == pytest.approx(0.07 * 0.8)
    assert error_of_look(30, is_last=True) == pytest.approx(0.07 * 0.4)


def test_looks_come_at_growing_numbers_of_blocks() -> None:
    looks = list(itertools.accumulate(range(9), lambda blocks, _: next_look(blocks)))
    assert looks == [0, 3, 5, 8, 12, 19, 30, 48, 77]


def test_a_sweep_that_stopped_between_two_looks_goes_on_to_the_next() -> None:
    assert next_look(9) == 12
    assert error_of_look(9) == error_of_look(12)


def test_the_errors_of_all_looks_together_are_bounded() -> None:
    looks = itertools.islice(itertools.accumulate(itertools.repeat(3), lambda blocks, _: next_look(blocks)), 40)
    assert 0.069 < sum(map(error_of_look, looks)) <= 0.07
