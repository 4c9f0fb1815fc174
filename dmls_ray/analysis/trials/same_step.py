"""Numbers that scripts print or log: of runs that were ended after different steps, those of the same step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dmls_ray.analysis.trials.run_lengths import steps_of, were_ended_apart
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord, Series
from dmls_ray.records.outcome import Outcome

COMPARED_VALUE = "compared_value"
"""Fact of a run: metric -> at which of its values it is compared; 0: at none."""


def at_the_same_step(trials: Sequence[Trial]) -> list[Trial]:
    """The trials, with the k-th value of what each run printed, k being the least number of values of any run.

    Where the k-th values are not of the same step, there is none.
    """
    records = [record for trial in trials for record in trial.records if record.outcome is Outcome.OK]
    if not were_ended_apart(records):
        return list(trials)
    places = {}
    for name in {name: None for record in records for name in record.series}:
        places[name] = _place_of(name, records)
    if not places:
        return list(trials)
    return [replace(trial, records=[_at(record, places) for record in trial.records]) for trial in trials]


def _place_of(name: str, records: Sequence[RunRecord]) -> int:
    """At which of its values a number is compared; 0: at none."""
    counts = []
    earliest, latest = 0.0, math.inf
    for record in records:
        series = record.series.get(name)
        if series is None or not series.count:
            continue
        counts.append(series.count)
        # Steps from one value to the next: the first one may come before a step, or after several.
        earliest = max(earliest, steps_of(record) / (series.count + 1))
        latest = min(latest, steps_of(record) / (series.count - 1) if series.count > 1 else math.inf)
    if len(set(counts)) == 1 and len(counts) > 1:
        return 0  # of runs of different lengths, as many: at their ends
    place = min(counts, default=0)
    longest = max((len(record.series.get(name, Series()).first) for record in records), default=0)
    return place if earliest <= latest and place <= longest else 0


def _at(record: RunRecord, places: dict[str, int]) -> RunRecord:
    """A record with the values at these places in the place of the last ones."""
    metrics = dict(record.metrics)
    for name in record.series:
        metrics.pop(name, None)
        first = record.series[name].first[: places[name]]
        if first and first[-1] is not None:
            metrics[name] = first[-1]
    return record.replace(metrics=metrics, facts={**record.facts, COMPARED_VALUE: places})
