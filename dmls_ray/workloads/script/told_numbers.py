"""`ToldNumbers`: the numbers that a script prints or logs, by name: the last one, and the first ones in their order."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dmls_ray.records.model import Series

_MOST_VALUES = 50
"""First values of a number that are kept: a run whose length was not given makes as many steps."""
_MOST_SERIES = 30
"""Numbers of which these are kept."""
_COUNTERS = {
    "step", "steps", "epoch", "epochs", "iter", "iters", "iteration", "iterations", "batch", "batches", "time", "times",
    "timestamp", "date", "elapsed", "eta", "runtime", "seconds", "secs", "sec", "ms", "idx", "index",
}  # fmt: skip
"""Words of the names of what says when something is told, and not how well the training goes."""
_RESULTS = {"loss", "losses", "acc", "accuracy", "error", "err", "score", "auc", "ppl", "reward", "return"}
"""Words that make a name none of a counter, as the loss of an epoch."""


class ToldNumbers:
    """Numbers by name."""

    def __init__(self) -> None:
        self.last: dict[str, float | str] = {}
        """The last value of each; of a pattern, the text where it is no number."""
        self._series: dict[str, Series] = {}

    def add(self, name: str, value: float | str) -> None:
        """Take the next value of a number."""
        self.last[name] = value
        series = self._series.setdefault(name, Series())
        series.count += 1
        is_kept = len(series.first) < _MOST_VALUES and (series.first or len(self._series) <= _MOST_SERIES)
        if is_kept and not isinstance(value, str):
            series.first.append(value)

    def or_those_of(self, others: ToldNumbers) -> ToldNumbers:
        """These numbers, those with a name of others replaced by these."""
        joined = ToldNumbers()
        joined.last = {**self.last, **others.last}
        joined._series = {**self._series, **others._series}
        return joined

    def series(self, columns: Mapping[str, str]) -> dict[str, Series]:
        """The first values of the numbers, and how many there were.

        Args:
            columns: name -> name of the metric.
        """
        return {column: self._series[name] for name, column in columns.items() if name in self._series}


def is_counter(name: str) -> bool:
    """Whether a name is that of a counter or a time, which says nothing of a training: `global_step`, `elapsed`."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)}
    return bool(words & _COUNTERS) and not words & _RESULTS
