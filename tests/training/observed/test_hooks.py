"""Errors in looking at a program."""

from __future__ import annotations

from dmls_ray.training.observed.hooks import Faults


def test_the_first_error_of_guarded_hooks_is_noted_and_none_is_raised() -> None:
    faults = Faults()
    taken: list[int] = []
    divide = faults.guarded(lambda value: taken.append(1 // value))
    for value in (1, 0, 1):
        divide(value)
    faults.guarded(int)("x")
    assert taken == [1, 1]
    assert faults.first.startswith("ZeroDivisionError")
