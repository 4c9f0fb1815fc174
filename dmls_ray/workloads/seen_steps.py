"""`SeenSteps`: the samples and tokens of the steps that count, how they are known, and which steps tested a model."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean, median, median_high
from typing import NamedTuple

_RECENT_STEPS = 9
"""Steps whose samples tell what is usual, which is looked at after as many steps, and after the first three."""
_MANY_MORE = 1.3
"""Samples of a step over the usual ones that are no longer those of training alone."""


class Seen(NamedTuple):
    """What a step had."""

    loaded: float = 0
    """Samples that loaders gave."""
    given: float = 0
    """Samples that the model was given."""
    tokens: float = 0
    """Tokens that the model was given."""
    counted_samples: float = 0
    """Samples that the code counted itself."""
    counted_tokens: float = 0

    @property
    def all_samples(self) -> float:
        """Its samples; 0 where they are unknown."""
        if self.counted_samples:
            return self.counted_samples
        # Without a loader, a model of tokens may be given them in either order of batch and length.
        is_unknown = not self.loaded and self.tokens > 0
        return 0.0 if is_unknown else self.loaded or self.given

    @property
    def all_tokens(self) -> float:
        """Its tokens; 0 where they are unknown."""
        return self.counted_tokens or self.tokens


class SeenSteps:
    """What the steps of a rank had."""

    def __init__(self) -> None:
        self._steps: list[Seen] = []
        """Those that count."""
        self._recent: deque[Seen] = deque(maxlen=_RECENT_STEPS)
        self._most_loaded = self._most_given = math.inf
        """Samples of a step without a test, by what was usual when last looked at: looking takes some microseconds."""
        self._count = self._interrupted = 0

    def add(self, seen: Seen, *, is_interrupted: bool) -> bool:
        """Add a step; returns whether it does not count, since a model was tested in it.

        Then a model was given something without gradients, which in most steps is a part of the training; or loaders
        gave many more samples than in the steps before, and models that train were not given more.

        Args:
            seen: what it had.
            is_interrupted: whether a model was given something without gradients.
        """
        self._count += 1
        self._interrupted += is_interrupted
        has_more_loaded = seen.loaded > self._most_loaded
        is_in_few_steps = 2 * self._interrupted <= self._count
        is_test = (is_interrupted and is_in_few_steps) or (has_more_loaded and seen.given <= self._most_given)
        self._recent.append(seen)
        if has_more_loaded or self._count == 3 or self._count % _RECENT_STEPS == 0:
            self._look_at_recent()
        if not is_test:
            self._steps.append(seen)
        return is_test

    def _look_at_recent(self) -> None:
        loaded, given, *_ = zip(*self._recent, strict=True)
        self._most_loaded = _MANY_MORE * median_high(loaded)
        self._most_given = _MANY_MORE * median_high(given) or math.inf

    def mean(self, timed: int) -> Seen:
        """The mean of the last steps, of which so many were timed.

        Where none was, it is that of the later half: models are first seen after the first step.
        """
        counted = self._steps[-timed:] if timed else self._steps[len(self._steps) // 2 :]
        return Seen(*map(fmean, zip(*counted, strict=True))) if counted else Seen()

    @property
    def usual_samples(self) -> float:
        """Samples of most steps: the last one of a pass over the data may have fewer."""
        return median(seen.all_samples for seen in self._steps) if self._steps else 0.0

    @property
    def usual_tokens(self) -> float:
        """The same of tokens."""
        return median(seen.all_tokens for seen in self._steps) if self._steps else 0.0


def describe_count(seen: Seen) -> str:
    """How samples are known: by the code's own count, from loaders, models, or both; empty if they are not."""
    if seen.counted_samples or seen.counted_tokens:
        return "user"
    if seen.loaded and seen.given:
        agree = seen.loaded == seen.given
        return "loader and model agree" if agree else f"loader (the model was given {seen.given:g})"
    if seen.loaded:
        return "loader"
    return "tokens of the model" if seen.tokens else "model" if seen.given else ""
