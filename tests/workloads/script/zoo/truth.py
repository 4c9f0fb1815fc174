"""What a script of the zoo says of itself: when each of its steps ended, with how many samples, and its tests.

A script calls `step(samples)` right after each optimizer step, which ends the script after the last one. It tests its
model within `testing()`. At its exit the truth is written to the path in the variable ZOO_TRUTH and the rank, as JSON;
without the variable it is printed.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

LAST = 30
"""The step after which a script ends."""

_ended_s: list[float] = []
_samples: list[float] = []
_tests_s: list[float] = [0.0]
"""Seconds of tests, by step: the last entry is that of the step under way."""
_shared = [False]


def step(samples: float, *, shared: bool = False) -> None:
    """A step has ended.

    Args:
        samples: different samples that it trained on this rank; a batch that an earlier step trained counts again.
        shared: whether all ranks trained the same ones.
    """
    _ended_s.append(time.perf_counter())
    _samples.append(samples)
    _tests_s.append(0.0)
    _shared[0] |= shared
    if len(_ended_s) == LAST:
        raise SystemExit


@contextmanager
def testing() -> Iterator[None]:
    """While the context lasts, the model is tested, and nothing is trained."""
    began = time.perf_counter()
    yield
    _tests_s[-1] += time.perf_counter() - began


def _write() -> None:
    told = json.dumps(
        {"ended_s": _ended_s, "samples": _samples, "tests_s": _tests_s[: len(_ended_s)], "shared": _shared[0]}
    )
    path = os.environ.get("ZOO_TRUTH")
    if path is None:
        print(told)
        return
    with open(path + os.environ.get("RANK", "0"), "w", encoding="utf-8") as file:
        file.write(told)


atexit.register(_write)
