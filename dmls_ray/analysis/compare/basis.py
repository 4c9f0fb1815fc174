"""What two sweeps have in common, and by what it is compared: trials, samples, their means, and their changes."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.measures import Kind, Measure, measure_of
from dmls_ray.analysis.metrics import drifts, is_exact, limit_of, quantity_of
from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.analysis.stats.block_model import Contrast
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Interval, are_same, compare_apart, estimate, verdict_of
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.config.identity import digest
from dmls_ray.config.options import Until
from dmls_ray.records.metrics import is_loss
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import commit_text
from dmls_ray.util.digests import AND_IMPORTS
from dmls_ray.util.errors import ConfigError

IN_THESE_SESSIONS = "different in these sessions"
"""The verdict on what depends on the session, where too few sessions say how much."""
_VERDICTS = {"speed": ("faster", "slower"), "ratio": ("more", "less"), "difference": ("higher", "lower")}
"""Kind of a measure -> the verdict on an interval above no difference, and on one below it."""

Samples = Mapping[str, float]
"""The values of a trial by repeat, or the means of its sessions by session."""


@dataclass(frozen=True)
class Basis:
    """By what two sweeps are compared."""

    measure: Measure
    unit: Literal["repeat", "session"] = "repeat"
    """What counts as one sample: a repeat, or the mean of a session."""

    @property
    def drifts(self) -> bool:
        """Whether the state of the machine may change the metric from one session to the next."""
        return drifts(self.measure.metric) or self.measure.kind == "speed"

    @property
    def knows_drift(self) -> bool:
        """Whether intervals know of what changes from one session to the next, or the metric depends on none."""
        return self.unit == "session" or not self.drifts

    def samples_of(self, trial: Trial) -> Samples:
        """The samples of the runs that ended ok; where ratios are taken, those above 0."""
        by_block = trial.by_block(self.measure.metric)
        samples: dict[str, list[float]] = defaultdict(list)
        for record in trial.counted:
            value = by_block.get(record.repeat)
            if value is not None and (value > 0 or not self.measure.is_ratio):
                name = record.session if self.unit == "session" else str(record.repeat)
                samples[name].append(value)
        return {name: self._mean(values) for name, values in samples.items()}

    def means_of(self, trials: Sequence[Samples]) -> Samples:
        """The mean over trials of each sample that has them all.

        So a block that was slow as a whole counts once, and not as often as there are trials.
        """
        values: dict[str, list[float]] = defaultdict(list)
        for trial in trials:
            for name, value in trial.items():
                values[name].append(value)
        return {name: self._mean(found) for name, found in values.items() if len(found) == len(trials)}

    def _mean(self, values: Sequence[float]) -> float:
        if len(values) == 1:
            return values[0]  # without what rounding a logarithm adds
        return statistics.geometric_mean(values) if self.measure.is_ratio else statistics.fmean(values)

    def compare(
        self, pair: Pair, a: Samples, b: Samples, *, level: float, resolution: float = 0.0, is_once: bool = False
    ) -> Effect | None:
        """B against A: B / A, of times A / B; B - A where differences are taken. None without samples to compare.

        Times and memory are not paired: A's third repeat ran at another time than B's. Results of training are paired
        by repeat, which has the same seed in both.

        Args:
            pair: the trial of B and that of A.
            a: the samples of A.
            b: those of B.
            level: confidence level of the interval.
            resolution: the smallest step of the values; 0 where they have none.
            is_once: whether equal values of a side say no more than one of them.
        """
        if not a or not b:
            return None
        metric, kind, is_ratio = self.measure.metric, self.measure.kind, self.measure.is_ratio
        values, base = [*b.values()], [*a.values()]
        is_once = is_once and are_same(values) and are_same(base)
        interval: Interval
        if kind == "difference" and self.unit == "repeat":
            paired = [b[name] - a[name] for name in b if name in a]
            if not paired:
                return None
            interval = estimate(paired, level=level, resolution=resolution, is_once=is_once)
        else:
            if kind == "speed" and quantity_of(metric) != "rate":
                values, base = base, values  # of times the inverse, so that more is faster
            interval = compare_apart(
                values, base, level=level, is_exact=is_exact(metric), is_once=is_once, is_ratio=is_ratio
            )
        low, high = interval.low, interval.high
        if low is not None and high is not None and not is_ratio:
            limit = limit_of(metric, [*values, *base])
            low, high = max(low, -limit), min(high, limit)
        contrast = Contrast(interval.centre, low, high, min(len(a), len(b)), None)
        return Effect(pair, self.measure, contrast, Until())

    def verdict(self, effect: Effect) -> str:
        """faster, slower, more, less, higher or lower; `not distinguished`; `unknown` where there is no interval;
        `IN_THESE_SESSIONS` where it knows nothing of what drifts from one session to the next.
        """
        words = _VERDICTS[self.measure.kind]
        verdict = verdict_of(effect.contrast, self.measure.null, *words)
        return IN_THESE_SESSIONS if verdict in words and not self.knows_drift else verdict


def basis_of(a: Results, b: Results, metric: str) -> Basis:
    """By what two sweeps are compared.

    Repeats of one session have their processes, and the state of the machine, in common, and so are more similar than
    they are like another session's (Kalibera & Jones, ISMM 2013): where there are sessions enough, each is one sample.
    """
    quantity = quantity_of(metric)
    kind: Kind = "difference"
    if quantity == "rate" or (quantity == "amount" and metric.endswith(("_s", "_ms_p50", "_ms_mean"))):
        kind = "speed"
    elif quantity == "amount" and not is_loss(metric):
        kind = "ratio"
    basis = Basis(measure_of(metric, kind))
    if kind == "difference" and not basis.drifts:
        return basis
    for results in (a, b):
        sessions = {record.session for record in results.records if record.outcome is Outcome.OK}
        if len(sessions) < MIN_REPEATS:
            return basis
    return Basis(basis.measure, "session")


def join(a: Results, b: Results) -> tuple[list[Pair], dict[str, list[str]]]:
    """Join two sweeps of `by_configuration`.

    Returns:
        Each trial that both have, in B against A; and the configurations, in words, that one alone has.

    Raises:
        ConfigError: a sweep has no run, no configuration is in both, or runs of A are those of B.
    """
    runs = []
    for results in (a, b):
        if not results.records:
            raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
        # A run without a session was recorded elsewhere.
        runs.append({(item.run_id, item.session, item.started_at) for item in results.records if item.session})
    if shared := runs[0] & runs[1]:
        raise ConfigError(
            f"{len(shared)} runs of {b.where} and of {a.where} are the same, not one measured twice; give two "
            "folders that were measured apart (--out, or --fresh)."
        )
    ids = {id(record) for record in a.records}
    both: list[Pair] = []
    only: dict[str, list[str]] = {"A": [], "B": []}
    # One table of both, so that the rows of A and of B have the same fields in the same order.
    joined = a.of([*a.records, *b.records])
    for row in make_table(joined).rows:
        sides = Trial(row.trial_id, row.factors, []), Trial(row.trial_id, row.factors, [])
        # A row has its records in this order, some as copies without what is not known.
        records = [record for record in joined.records if record.trial_id == row.trial_id]
        for record, known in zip(records, row.records, strict=True):
            sides[id(record) not in ids].records.append(known)
        if all(side.records for side in sides):
            both.append(Pair(sides[1], sides[0], "values", "sweep", "B", "A", row.factors))
        else:
            only["A" if sides[0].records else "B"].append(describe_configuration(row.factors))
    if not both:
        raise ConfigError(
            f"no configuration is both in {a.where} ({only['A'][0]}, ...) and in {b.where} ({only['B'][0]}, ...). Give "
            "two sweeps of the same configurations; to compare configurations, make them axes of one sweep."
        )
    return both, only


def by_configuration(a: Results, b: Results) -> list[Results]:
    """Both sweeps with one trial_id for each configuration, whichever code and data its runs had."""
    ids: dict[str, str] = {}
    named = []
    for results in (a, b):
        records = list(results.records)
        for index, record in enumerate(records):
            if record.code or record.data:
                trial_id = ids.setdefault(digest(factors_of(record)), record.trial_id)
                records[index] = record.replace(trial_id=trial_id)
        named.append(results.of(records))
    return named


Difference = tuple[list[str], list[str]]
"""The values of a fact in A and in B, each once; none where it is unknown."""


def differences(a: Results, b: Results, trials: Collection[str]) -> dict[str, Difference]:
    """The facts, as `commit` or `machine cpu`, in which the runs of some trials differ between two sweeps."""
    of_a, of_b = _facts_of(a, trials), _facts_of(b, trials)
    found = {}
    for name in dict.fromkeys([*of_a, *of_b]):
        if of_a[name] != of_b[name]:
            found[name] = (sorted(of_a[name]), sorted(of_b[name]))
    return found


def _facts_of(results: Results, trials: Collection[str]) -> Mapping[str, set[str]]:
    """Every value of each fact. A skipped run was not made; None and an empty text are no values."""
    values: dict[str, set[str]] = defaultdict(set)
    for record in results.records:
        if record.outcome is Outcome.SKIPPED or record.trial_id not in trials:
            continue
        facts: dict[str, Any] = {name: getattr(record, name) for name in ("device", "backend", "mode")}
        facts["commit"] = commit_text(record.git)
        facts["day"] = record.started_at[:10]
        for field in ("machine", "versions", "code", "data"):
            for name, value in getattr(record, field).items():
                # An entry for a module with its imports differs whenever another entry does.
                if not name.endswith(AND_IMPORTS):
                    facts[f"{field} {name}"] = value
        for name, value in facts.items():
            if value not in (None, ""):
                values[name].add(str(value))
    return values
