from __future__ import annotations

import itertools

import pytest

from dmls_ray.analysis.stats.looks import error_of_look, next_look


def test_the_last_look_spends_what_those_before_it_have_left() -> None:
    assert error_of_look(3, is_last=True) == pytest.approx(0.07)
    assert error_of_look(12, is_last=True) == pytest.approx(0.07 * 0.8)
    assert error_of_look(30, is_last=True) == pytest.approx(0.07 * 0.4)


def test_the_errors_of_all_looks_together_are_bounded() -> None:
    looks = itertools.islice(itertools.accumulate(itertools.repeat(3), lambda blocks, _: next_look(blocks)), 40)
    assert 0.069 < sum(map(error_of_look, looks)) <= 0.07
