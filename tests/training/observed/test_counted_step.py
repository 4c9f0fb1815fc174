"""The step of a warm-up whose operations are counted."""

from __future__ import annotations

import threading

import torch
from torch.utils.flop_counter import FlopCounterMode

from dmls_ray.training.compat import current_dispatch_mode
from dmls_ray.training.observed.counted_step import CountedStep

PRODUCT = 2 * 4 * 4 * 4


def multiply() -> None:
    torch.ones(4, 4) @ torch.ones(4, 4)


def test_one_step_is_counted() -> None:
    step = CountedStep()
    assert step.unknown
    for number in range(2, 5):
        step.begin(tests=0, has_compiled=False)
        multiply()
        step.end(number, tests=0)
    assert (step.number, step.unknown, step.counter.model) == (2, "", {torch.float32: PRODUCT})


def test_a_step_with_a_test_of_the_model_is_not_the_one_that_counts() -> None:
    step = CountedStep()
    step.begin(tests=1, has_compiled=False)
    multiply()
    step.end(2, tests=2)
    assert step.unknown
    step.begin(tests=2, has_compiled=False)
    step.end(3, tests=2)
    assert (step.number, step.counter.model) == (3, {})


def test_a_step_that_does_not_end_is_not_counted_and_leaves_no_mode() -> None:
    step = CountedStep()
    step.begin(tests=0, has_compiled=False)
    step.end(0, tests=0)
    assert step.unknown
    assert current_dispatch_mode() is None


def test_a_compiled_model_is_a_reason() -> None:
    step = CountedStep()
    step.begin(tests=0, has_compiled=True)
    assert current_dispatch_mode() is None
    assert "compile" in step.unknown


def test_a_mode_of_the_program_is_neither_taken_for_ours_nor_left() -> None:
    before = CountedStep()
    with FlopCounterMode(display=False):
        before.begin(tests=0, has_compiled=False)
    assert "TorchDispatchMode" in before.unknown

    step = CountedStep()
    step.begin(tests=0, has_compiled=False)
    with FlopCounterMode(display=False) as mode:
        multiply()
        step.end(2, tests=0)
        assert current_dispatch_mode() is not step.counter
    assert mode.get_total_flops() == PRODUCT
    assert "TorchDispatchMode" in step.unknown
    step.end(3, tests=0)
    assert current_dispatch_mode() is None, "it is left as soon as it can be"


def test_a_step_that_another_thread_ends_is_not_counted() -> None:
    step = CountedStep()
    step.begin(tests=0, has_compiled=False)
    other = threading.Thread(target=lambda: step.end(2, tests=0))
    other.start()
    other.join()
    assert "thread" in step.unknown
    step.end(3, tests=0)
    assert current_dispatch_mode() is None


def test_three_steps_over_which_a_mode_of_the_program_was_entered_are_not_counted_as_one() -> None:
    step = CountedStep()
    step.begin(tests=0, has_compiled=False)
    mode = FlopCounterMode(display=False)
    mode.__enter__()
    step.end(2, tests=0)
    multiply()
    mode.__exit__(None, None, None)
    step.end(3, tests=0)
    assert "TorchDispatchMode" in step.unknown
