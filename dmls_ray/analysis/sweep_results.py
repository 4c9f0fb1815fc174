"""`SweepResults`: what `load` and `sweep` return, for Python and notebooks: runs, trials, the answer and figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_ray.analysis import results as runs
from dmls_ray.analysis.export.text_tables import plain_columns
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.figures.drawn import drawings, save
from dmls_ray.analysis.findings.answer import best_first
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import SweepSummary, summarize
from dmls_ray.analysis.table.named_layouts import shown_columns
from dmls_ray.analysis.trials.common_metrics import speed_metric
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import metric_direction

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 100
"""Characters of a line of an answer."""


@dataclass(frozen=True)
class Figure:
    """A figure, which a notebook shows."""

    chart: Chart

    def _repr_svg_(self) -> str:
        return drawings([self.chart])[0]

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write it as PNG, SVG and PDF into a folder; returns the files."""
        return save([self.chart], folder)


class SweepResults(Results):
    """The runs of a sweep as pandas DataFrames, and its trials: `for trial in results`.

    A notebook shows the answer and the table.
    """

    @classmethod
    def of_results(cls, results: Results) -> SweepResults:
        """The same runs."""
        made = cls(results.folder, results.records, mirror=results.mirror, left_out=results.left_out)
        made.until, made.judged_by = results.until, results.judged_by
        return made

    def __len__(self) -> int:
        """The number of trials."""
        return len(self.summary.table.rows)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.summary.table.rows)

    @cached_property
    def summary(self) -> SweepSummary:
        """The table of the trials, and the answer to what the sweep asked."""
        results = self.of(self.records)  # else it refers to itself, and a copy of a URI stays for a while
        results.until, results.judged_by = self.until, self.judged_by
        return summarize(results)

    def to_pandas(self) -> pd.DataFrame:
        """One row a trial: the fields that vary, and of each metric the mean over its repeats and the ends of its 95%
        interval.
        """
        return self.summary.table.numbers()

    def best(self, metric: str | None = None) -> Trial:
        """The trial with the best mean of a metric; whether another one equals it, `print(results)` says.

        Args:
            metric: its name; without it, the throughput.

        Raises:
            ConfigError: no trial has it, or which values of it are better is not known.
        """
        table = self.summary.table
        metric = metric or speed_metric(*table.rows)
        direction = metric_direction(metric)
        rows = best_first(table, metric)
        if not rows or direction == "none":
            raise ConfigError(f"best: no trial is the best by {metric}; give one of {', '.join(table.metric_names)}.")
        return (min if direction == "min" else max)(rows, key=lambda trial: trial.estimates[metric].centre)

    def plot(self, name: str | None = None) -> Figure:
        """A figure, which a notebook shows; `save` of it writes files.

        Args:
            name: its name, as `dmls-ray figures` writes it; without it, the first of the report.

        Raises:
            ConfigError: there is no such figure, or vl-convert is not installed.
        """
        found = {chart.name: chart for chart in charts(self.summary.table)}
        chosen = name or next(iter(found), "")
        if chosen not in found:
            raise ConfigError(f"plot: there is no figure {chosen}; these runs have {', '.join(found) or 'none'}.")
        return Figure(found[chosen])

    def __str__(self) -> str:
        notes, answer = self.summary.table.notes, self.summary.answer
        return "\n".join([plain_columns(self._shown), "", *notes, "", *answer.lines(_WIDTH)])

    def _repr_html_(self) -> str:
        answer = self.summary.answer
        below = "".join(f"<p>{escape(text)}</p>" for text in (*answer.sentences, answer.undecided))
        return f"<p><b>{escape(answer.headline)}</b></p>{below}{self._shown.to_html(index=False)}"

    @property
    def _shown(self) -> pd.DataFrame:
        """The columns of a page, as texts."""
        table = self.summary.table
        return table.frame(shown_columns(table).columns)


def load(folder: str | os.PathLike[str], *, stale: bool = False) -> SweepResults:
    """The results in a folder, or at a URI: s3://bucket/batch_size, say.

    Args and errors are those of `analysis.results.load`.
    """
    return SweepResults.of_results(runs.load(folder, stale=stale))
