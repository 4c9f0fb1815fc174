"""Which configuration to use for an objective, which others are indistinguishable, and what is worth trying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dmls_ray.analysis.advise.caveats import caveats_of
from dmls_ray.analysis.advise.memory_estimates import memory_estimates
from dmls_ray.analysis.advise.objective import Candidate, Objective, Request, Unable, candidates, settle
from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.advise.pareto import costs_of, front_of
from dmls_ray.analysis.advise.suggestions import batch_by_noise_scale, suggestions_for
from dmls_ray.analysis.memory import MEMORY, hardly_differs, memory_metric
from dmls_ray.analysis.metrics import label_of
from dmls_ray.analysis.results import Results, field_names
from dmls_ray.analysis.stats.block_model import BlockModel
from dmls_ray.analysis.stats.formatting import ACCURACY, RATIO, format_interval
from dmls_ray.analysis.stats.intervals import is_above, is_below
from dmls_ray.analysis.summary.effort import describe_effort
from dmls_ray.analysis.summary.independent_ranks import describe_independent_ranks
from dmls_ray.analysis.summary.losers import Loser, loss_of
from dmls_ray.analysis.summary.phrases import count_noun, describe_configuration, factor_cells, join_names
from dmls_ray.analysis.summary.sweep_summary import SweepQuestion
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.row import Row
from dmls_ray.storage.sweep_file import read_sweep
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
    not_compared: Sequence[Candidate]
    """Those without a block in which both ran in one environment."""
    unable: Sequence[tuple[Row, Unable]]
    """Those that cannot be chosen, and why."""
    front: Sequence[str]
    """trial_id of those that no other one beats in all of `axes`, by their means."""
    axes: Sequence[str]
    """The measures that the front is of."""
    savings: Sequence[str]
    """Advantages of those that are indistinguishable."""
    estimates: Sequence[str]
    """For memory: what batches that were not run need."""
    asks_batch: bool
    """Whether the memory of a batch is asked, so that its estimates are the answer."""
    noise_scale: str
    """The global batch that the gradient noise scale suggests; empty where it was not measured."""
    against: Mapping[str, str]
    """trial_id -> how the configuration compares with the best one: a ratio or a difference, with the interval by which
    it is judged."""
    suggestions: Sequence[str]
    """What was not tried and would be worth it, with the flag that does it."""
    caveats: Sequence[str]
    """What the data cannot say."""

    @property
    def sentence(self) -> str:
        """The answer: the configuration to use, or the memory of the batch that was asked."""
        if not self.asks_batch:
            return self._choice
        return " ".join([*self.estimates, *self._before_training])

    @property
    def _before_training(self) -> list[str]:
        """What a process on a CPU needs besides; empty on a GPU."""
        if self.table.has("device_mem_mib"):
            return []
        sizes = [
            record.metrics["start_mem_mib"]
            for row in self.table.rows
            for record in row.counted
            if "start_mem_mib" in record.metrics
        ]
        return [f"The process of a rank has {max(sizes):,.0f} MiB before training."] if sizes else []

    @property
    def _choice(self) -> str:
        """The configuration to use."""
        objective, best = self.objective, self.best
        if best is None:
            return f"For {objective.name}: {self._why_none()}{self._left_out}."
        value = f"{objective.label} {best.text}; n={len(best.samples)}"
        if (loss := _loss_of(self.table, objective, best, self.table.rows)) is not None:
            value += f"; {loss.difference}"
        sentences = [f"For {objective.name} use {best.name} ({value})"]
        if self.indistinguishable:
            names = join_names([f"{item.name} ({self._compared(item)})" for item in self.indistinguishable])
            why = "" if best.value.low is not None else f", of which n={len(best.samples)} says nothing"
            sentences.append(f"not distinguished from it{why}: {names}")
        elif self.worse:
            others = "comparable one" if self.not_compared or self._left_out else "other"
            rest = f"the only {others}" if len(self.worse) == 1 else f"each of the {len(self.worse)} {others}s"
            sentences.append(f"better than {rest} beyond doubt")
        if self.not_compared:
            names = join_names([f"{item.name} ({item.text})" for item in self.not_compared])
            sentences.append(f"not compared with it, since no block has both in one environment: {names}")
        return ". ".join([f"{'; '.join(sentences)}{self._left_out}", *self.savings]) + "."

    def _compared(self, item: Candidate) -> str:
        """A configuration's value, and how it compares with the best one."""
        against = self.against.get(item.row.trial_id)
        return f"{item.text}, against it {against}" if against else item.text

    @property
    def _left_out(self) -> str:
        """The clauses on configurations that are not chosen since their ranks trained apart, or for what they lose."""
        names = [describe_configuration(row.factors) for row, unable in self.unable
                 if unable.kind == "independent_ranks"]  # fmt: skip
        losers = [unable.loser for _, unable in self.unable if unable.loser is not None]
        text = f"; left out, since their ranks did not train one model together: {join_names(names)}" if names else ""
        if losers:
            lost = join_names([loser.text for loser in losers])
            text += f"; left out for what they lose (--any-accuracy takes them in): {lost}"
        return text

    def _why_none(self) -> str:
        """Why no configuration can be chosen, and which is nearest to the target."""
        target, rows = self.objective.target, [row for row in self.table.rows if not row.independent_ranks]
        if any(unable.kind == "times_unknown" for _, unable in self.unable):
            return f"no configuration has a known time to a test accuracy of {target:g}"
        levels = [(level, row) for row in rows if (level := row.value_of("test_accuracy")) is not None]
        if target is None or not levels:
            return f"none of {count_noun(len(self.table.rows), 'configuration')} can be chosen"
        highest, nearest = max(levels, key=lambda item: item[0])
        return (
            f"none of {count_noun(len(rows), 'configuration')} reached a test accuracy of {target:g}; the highest is "
            f"{ACCURACY(highest)}, with {describe_configuration(nearest.factors)}"
        )

    @property
    def notes(self) -> list[str]:
        """How to read the table, what to try, and what the data cannot say."""
        notes = describe_independent_ranks(self.table.rows)
        if self.front:
            axes = ", ".join(label_of(name) for name in self.axes)
            memory = memory_metric(self.table.rows)
            is_equal = bool(memory) and memory not in self.axes
            left_out = f"; {label_of(memory)} hardly differs and is left out" if is_equal else ""
            notes.append(f"Front: no other configuration is as good in all of {axes}, by means{left_out}.")
        if self.worse:
            notes.append(
                "Distinguished by the intervals of differences within blocks, which hold for all pairs together: of "
                "configurations that are equally good any is called worse at most 5 times in 100."
            )
        ranked = [item.row for item in (self.best, *self.indistinguishable, *self.worse) if item is not None]
        if self.objective.is_learned and (effort := describe_effort(ranked)):
            notes.append(f"{self.objective.label} is compared at {effort}.")
        late = [f"{describe_configuration(row.factors)} {unable.text}"
                for row, unable in self.unable if unable.kind == "target_not_reached"]  # fmt: skip
        if late:
            notes.append(f"Not half of the runs reached the target: {join_names(late)}.")
        notes += [] if self.asks_batch else [f"Estimate: {line}" for line in self.estimates]
        if self.noise_scale:
            notes.append(f"Batch size: {self.noise_scale}")
        notes += [f"Worth trying: {line}" for line in self.suggestions]
        notes += [f"Not known: {line}" for line in self.caveats]
        return [*notes, self._choice] if self.asks_batch else notes

    @property
    def spare(self) -> list[str]:
        """Heads of `frame` that a narrow terminal may leave out, the first first."""
        costs = [label_of(name) for name in (*costs_of(self.table), "test_accuracy") if name != self.objective.measure]
        return ["front", *reversed(costs), "outcome", "n"]

    def frame(self) -> pd.DataFrame:
        """The configurations as texts, the best first, with marks."""
        objective, best = self.objective, [self.best] if self.best else []
        marked = {"best": best, "not distinguished": self.indistinguishable, "worse": self.worse,
                  "not compared": self.not_compared}  # fmt: skip
        verdicts = {item.row.trial_id: verdict for verdict, items in marked.items() for item in items}
        ranked = sorted([item for items in marked.values() for item in items],
                        key=lambda item: objective.badness(item.value.centre))  # fmt: skip
        columns = [name for name in (*costs_of(self.table), "test_accuracy")
                   if self.table.has(name) and name != objective.measure]  # fmt: skip
        rows: list[dict[str, str]] = []
        for row, text in [
            *((item.row, item.text) for item in ranked),
            *((row, unable.text) for row, unable in self.unable),
        ]:
            cells = {
                f"{objective.label} [95%]": text,
                **{label_of(name): row.text(name) for name in columns},
                "against best [95%]": self.against.get(row.trial_id, ""),
                "n": str(len(row.counted)),
                "front": "yes" if row.trial_id in self.front else "",
                "verdict": verdicts.get(row.trial_id, ""),
                "outcome": row.outcome,
            }
            rows.append(factor_cells(row.factors, other_headers=cells) | cells)
        return pd.DataFrame(rows, columns=field_names(rows), dtype=object)


def advise(
    results: Results,
    name: str,
    *,
    target: float | None = None,
    price_per_hour: float | None = None,
    metric: str | None = None,
    minimizes: bool | None = None,
    batch: int | None = None,
    any_accuracy: bool = False,
) -> Advice:
    """Which configuration to use for an objective, and what the runs say beyond that.

    Args:
        results: the runs of a sweep.
        name: the objective, as after `--for`.
        target: test accuracy to be reached: for time-to-accuracy (without it, target_accuracy of the runs); for cost,
            which is of a whole run without it; for throughput and memory, what a configuration must come to.
        price_per_hour: of a rank, in any currency; for cost.
        metric: for accuracy, what to judge by; without it the metric of a search, else validation_accuracy where all
            have it, else test_accuracy.
        minimizes: whether that is to be small; without it as in the search, else if it is a loss.
        batch: for memory, the batch to estimate; without it, twice the largest that was run.
        any_accuracy: whether a configuration may be chosen that loses accuracy, or has a higher loss, beyond chance;
            with a target, those may that reach it.

    Raises:
        ConfigError: there is no such objective, these runs cannot be judged by it, or an argument has no use.
    """
    if not results.records:
        raise ConfigError(f"{results.where} has no run; run its sweep first, or give another folder.")
    question = SweepQuestion.of(read_sweep(results.folder).get("sessions", []))
    table = make_table(results, best_by=question.best_by)
    if name not in OBJECTIVES:
        raise ConfigError(f"--for {name} is unknown; choose from {', '.join(OBJECTIVES)}.")
    request = Request(
        target=target, price_per_hour=price_per_hour, metric=metric, minimizes=minimizes, batch=batch,
        any_accuracy=any_accuracy,
    )  # fmt: skip
    objective = settle(OBJECTIVES[name], table, request)
    able, unable = candidates(table, objective, any_accuracy=any_accuracy)
    best = able[0] if able else None
    model = objective.model(table, able)
    indistinguishable, worse, not_compared = _split_by_verdict(able, objective, model)
    front = front_of(
        table,
        objective.measure if objective.is_learned else "test_accuracy",
        minimizes=objective.is_learned and objective.minimizes,
        any_accuracy=any_accuracy or target is not None,
    )
    return Advice(
        objective=objective,
        table=table,
        best=best,
        indistinguishable=indistinguishable,
        worse=worse,
        against={
            item.row.trial_id: objective.describe_against(more)
            for item in able[1:]
            if (more := objective.compared(item, able[0], model)) is not None
        },
        not_compared=not_compared,
        unable=unable,
        front=[front.rows[place].trial_id for place in front.places] if len(front.axes) > 1 else [],
        axes=front.axes,
        savings=_savings(table, objective, best, indistinguishable) if best else [],
        estimates=memory_estimates(table, objective.measure, batch) if objective.takes_batch else [],
        asks_batch=batch is not None,
        noise_scale=batch_by_noise_scale(table, best),
        suggestions=suggestions_for(table, objective, best, able, indistinguishable, model=model),
        caveats=list(caveats_of(results, table, objective, best)),
    )


def _split_by_verdict(
    able: Sequence[Candidate], objective: Objective, model: BlockModel
) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
    """Those that are indistinguishable from the first one, those that are worse, and those that are not comparable."""
    indistinguishable: list[Candidate] = []
    worse: list[Candidate] = []
    not_compared: list[Candidate] = []
    for candidate in able[1:]:
        more = objective.compared(candidate, able[0], model)
        # Where the first has runs that did not reach the target, its times are too short to compare with others.
        is_worse = able[0].is_whole and is_above(more, 0)
        (not_compared if more is None else worse if is_worse else indistinguishable).append(candidate)
    return indistinguishable, worse, not_compared


def _loss_of(table: Table, objective: Objective, best: Candidate, others: Sequence[Row]) -> Loser | None:
    """By how much the best one is less accurate than others, where no target says what it must come to."""
    is_judged = objective.is_learned or objective.target is not None
    return None if is_judged else loss_of(table, best.row, others)


def _savings(table: Table, objective: Objective, best: Candidate, indistinguishable: Sequence[Candidate]) -> list[str]:
    """Advantages of the indistinguishable ones: accuracy, every run reached the target, fewer ranks, less memory."""
    sentences = []
    if (loss := _loss_of(table, objective, best, [item.row for item in indistinguishable])) is not None:
        sentences.append(f"Of these {describe_configuration(loss.base.factors)} is the most accurate")
    surest = next((item for item in indistinguishable if item.is_whole), best)
    if not best.is_whole and surest is not best:
        sentences.append(f"Of these {surest.name} is the fastest that got there in every run")
    fewest = min(indistinguishable, key=lambda item: item.row.world_size, default=best)
    if fewest.row.world_size < best.row.world_size:
        ranks = count_noun(fewest.row.world_size, "rank")
        sentences.append(f"Of these {fewest.name} needs {ranks} in place of {best.row.world_size}")
    lighter = []
    memory = memory_metric([best.row, *(item.row for item in indistinguishable)])
    for item in indistinguishable if memory else ():
        if hardly_differs([side.row.value_of(memory) or 0.0 for side in (item, best)], memory):
            continue
        ratio = item.row.comparisons.ratio(item.row, best.row, memory)
        if ratio is not None and is_below(ratio, 1 - _WORTH):
            lighter.append((item, ratio))
    if lighter:
        lightest, ratio = min(lighter, key=lambda pair: pair[1].centre)
        share = format_interval(ratio, RATIO, null=1)
        sentences.append(f"Of these {lightest.name} takes {share} times the {MEMORY[memory]} of a rank")
    return sentences
