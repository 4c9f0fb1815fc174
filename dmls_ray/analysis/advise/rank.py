"""Which configuration to use for an objective, which others are indistinguishable, and what is worth trying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from dmls_ray.analysis.advise.caveats import caveats_of
from dmls_ray.analysis.advise.gradient_noise import batch_by_noise_scale
from dmls_ray.analysis.advise.objective import Candidate, Objective, Request, Unable, UnableReason, candidates, settle
from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.advise.pareto import EQUAL_MEMORY, costs_of, front_of
from dmls_ray.analysis.advise.suggestions import suggestions_for
from dmls_ray.analysis.metrics import format_of, label_of
from dmls_ray.analysis.results import Results, field_names
from dmls_ray.analysis.stats.formatting import ACCURACY, RATIO, format_interval, format_value
from dmls_ray.analysis.stats.intervals import bonferroni_level, compare
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, factor_cells, join_names
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.util.errors import ConfigError

_WORTH = 0.05
"""A saving of memory below this share is not worth a sentence, however sure it is."""


@dataclass(frozen=True)
class Advice:
    """What the runs of a sweep say to an objective."""

    objective: Objective
    table: Table
    best: Candidate | None
    """None where no configuration can be chosen: none reached the target."""
    indistinguishable: Sequence[Candidate]
    """Those that are indistinguishable from it, the best first."""
    worse: Sequence[Candidate]
    """Those that are worse beyond doubt."""
    unable: Sequence[tuple[Row, Unable]]
    """Those that cannot be chosen, and why."""
    front: Sequence[str]
    """trial_id of those that no other one beats in all of `axes`, by their medians."""
    axes: Sequence[str]
    """The measures that the front is of."""
    savings: Sequence[str]
    """Advantages of those that are indistinguishable."""
    noise_scale: str
    """The global batch that the gradient noise scale suggests; empty where it was not measured."""
    suggestions: Sequence[str]
    """What was not tried and would be worth it, with the flag that does it."""
    caveats: Sequence[str]
    """What the data cannot say."""

    @property
    def sentence(self) -> str:
        """The configuration to use."""
        objective = self.objective
        if self.best is None:
            reached = (
                f"reached a test accuracy of {objective.target:g}" if objective.target is not None else "can be chosen"
            )
            if any(unable.reason is UnableReason.TIMES_UNKNOWN for _, unable in self.unable):
                return (
                    f"For {objective.name}: no configuration has a known time to a test accuracy of "
                    f"{objective.target:g}."
                )
            return (
                f"For {objective.name}: none of {count_noun(len(self.table.rows), 'configuration')} {reached}"
                f"{self._nearest()}."
            )
        best = self.best
        sentences = [f"For {objective.name} use {best.name} ({objective.label} {best.text}; n={len(best.samples)})"]
        if self.indistinguishable:
            names = join_names([f"{other.name} ({other.text})" for other in self.indistinguishable])
            why = "" if best.value.low is not None else f", of which n={len(best.samples)} says nothing"
            sentences.append(f"indistinguishable from it{why}: {names}")
        elif self.worse:
            rest = "the only other one" if len(self.worse) == 1 else f"each of the {len(self.worse)} others"
            sentences.append(f"better than {rest} beyond doubt")
        return ". ".join([f"{'; '.join(sentences)}", *self.savings]) + "."

    @property
    def notes(self) -> list[str]:
        """How to read the table, what to try, and what the data cannot say."""
        axes = ", ".join(label_of(name) for name in self.axes)
        notes = []
        if self.front:
            indistinguishable = "" if "peak_mem_mib" in self.axes or not self.table.has("peak_mem_mib") else (
                f"; peak MiB differs by less than {EQUAL_MEMORY:.0%} and is left out")  # fmt: skip
            notes.append(f"Front: no other configuration is as good in all of {axes}, by medians{indistinguishable}.")
        others = len(self.worse) + len(self.indistinguishable)
        if self.worse:
            notes.append(
                "Distinguished by the interval of the median over blocks"
                + (
                    f", each of {100 * bonferroni_level(others):.4g}% for {others} comparisons (Bonferroni)"
                    if others > 1
                    else ""
                )
                + ": of configurations that are equally good one is called better than all others at most 5 times in "
                "100."
            )
        late = [
            f"{describe_configuration(row.factors)} {unable.text}"
            for row, unable in self.unable
            if unable.reason is UnableReason.TARGET_NOT_REACHED
        ]
        if late:
            notes.append(f"Not half of the runs reached the target: {join_names(late)}.")
        if self.noise_scale:
            notes.append(f"Batch size: {self.noise_scale}")
        return [*notes, *(f"Worth trying: {line}" for line in self.suggestions),
                *(f"Not known: {line}" for line in self.caveats)]  # fmt: skip

    def frame(self) -> pd.DataFrame:
        """The configurations as texts, the best first, with marks."""
        objective, ranked = self.objective, [*([self.best] if self.best else []), *self.indistinguishable, *self.worse]
        ranked.sort(key=lambda item: objective.badness(item.value.centre))
        verdicts = {item.row.trial_id: "worse" for item in self.worse}
        verdicts |= {item.row.trial_id: "indistinguishable" for item in self.indistinguishable}
        verdicts |= {self.best.row.trial_id: "best"} if self.best else {}
        columns = [name for name in self._column_metrics() if name != objective.measure]
        rows: list[dict[str, str]] = []
        for row, text in [
            *((item.row, item.text) for item in ranked),
            *((row, unable.text) for row, unable in self.unable),
        ]:
            cells = {f"{objective.label} [95%]": text}
            for name in columns:
                cells[label_of(name)] = format_value(row.estimates.get(name), format_of(name))
            cells["n"] = str(len(row.counted))
            cells["front"] = "yes" if row.trial_id in self.front else ""
            cells["verdict"] = verdicts.get(row.trial_id, "")
            cells["outcome"] = row.outcome
            rows.append(factor_cells(row.factors, other_headers=cells) | cells)
        return pd.DataFrame(rows, columns=field_names(rows), dtype=object)

    def _column_metrics(self) -> list[str]:
        return [name for name in (*costs_of(self.table), "test_accuracy") if self.table.has(name)]

    def _nearest(self) -> str:
        """Which came nearest to the target."""
        known = [(level, row) for row in self.table.rows if (level := row.median_of("test_accuracy")) is not None]
        if not known or self.objective.target is None:
            return ""
        level, row = max(known, key=lambda item: item[0])
        return f"; the highest is {ACCURACY(level)}, with {describe_configuration(row.factors)}"


def advise(
    results: Results,
    name: str,
    *,
    target: float | None = None,
    price_per_hour: float | None = None,
    metric: str | None = None,
    minimizes: bool | None = None,
) -> Advice:
    """Which configuration to use for an objective, and what the runs say beyond that.

    Args:
        results: the runs of a sweep.
        name: the objective, as after `--for`.
        target: test accuracy to be reached: for time-to-accuracy (without it, target_accuracy of the runs); for cost,
            which is of a whole run without it; for throughput and memory, what a configuration must come to.
        price_per_hour: of a rank, in any currency; for cost.
        metric: for accuracy, what to judge by; without it validation_accuracy where all have it, else test_accuracy.
        minimizes: whether that is to be small; without it, if it is a loss.

    Raises:
        ConfigError: there is no such objective, these runs cannot be judged by it, or an argument has no use.
    """
    if not results.records:
        raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
    table = make_table(results)
    if name not in OBJECTIVES:
        raise ConfigError(f"--for {name} is unknown; choose from {', '.join(OBJECTIVES)}.")
    request = Request(target=target, price_per_hour=price_per_hour, metric=metric, minimizes=minimizes)
    objective = settle(OBJECTIVES[name], table, request)
    able, unable = candidates(table, objective)
    best = able[0] if able else None
    indistinguishable, worse = _split_by_verdict(able, objective)
    by_metric = objective.takes_metric
    front = front_of(table, objective.measure, minimizes=objective.minimizes) if by_metric else front_of(table)
    level = bonferroni_level(len(able) - 1)
    return Advice(
        objective=objective,
        table=table,
        best=best,
        indistinguishable=indistinguishable,
        worse=worse,
        unable=unable,
        front=[front.rows[place].trial_id for place in front.places] if len(front.axes) > 1 else [],
        axes=front.axes,
        savings=_savings(best, indistinguishable) if best else [],
        noise_scale=batch_by_noise_scale(table, best),
        suggestions=suggestions_for(table, objective, best, able, indistinguishable, level=level),
        caveats=caveats_of(results, table, objective, best),
    )


def _split_by_verdict(able: Sequence[Candidate], objective: Objective) -> tuple[list[Candidate], list[Candidate]]:
    """Those that are indistinguishable from the first one, and those that are worse.

    The intervals hold together (Bonferroni), and both sides count, since any of them may be the one that looks best: of
    configurations that are equally good one is called better than all others at most 1 time in 20.
    """
    indistinguishable: list[Candidate] = []
    worse: list[Candidate] = []
    for other in able[1:]:
        by = objective.compared(other, able[0], bonferroni_level(len(able) - 1))
        # Where the first has runs that did not get there, its times are too short to compare with others.
        known = able[0].is_whole and by is not None and by.low is not None and by.low > 0
        (worse if known else indistinguishable).append(other)
    return indistinguishable, worse


def _savings(best: Candidate, indistinguishable: Sequence[Candidate]) -> list[str]:
    """Advantages of the indistinguishable ones: every run reached the target, fewer ranks, less memory."""
    sentences = []
    surest = next((other for other in indistinguishable if other.is_whole), best)
    if not best.is_whole and surest is not best:
        sentences.append(f"Of these {surest.name} is the fastest that got there in every run")
    fewest = min(indistinguishable, key=lambda item: item.row.world_size, default=best)
    if fewest.row.world_size < best.row.world_size:
        sentences.append(
            f"Of these {fewest.name} needs {count_noun(fewest.row.world_size, 'rank')} in place of "
            f"{best.row.world_size}"
        )
    lighter = []
    for other in indistinguishable:
        sizes = ({block: size for block, size in item.row.by_block("peak_mem_mib").items() if size > 0}
                 for item in (other, best))  # fmt: skip
        if (
            (less := compare(*sizes, level=bonferroni_level(len(indistinguishable))))
            and less.ratio.high is not None
            and less.ratio.high < 1 - _WORTH
        ):
            lighter.append((less.ratio.centre, other, less.ratio))
    if lighter:
        _, least, times = min(lighter, key=lambda item: item[0])
        sentences.append(f"Of these {least.name} takes {format_interval(times, RATIO)} times the peak memory of a rank")
    return sentences
