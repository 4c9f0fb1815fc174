"""`Layout`: which columns and rows a table of one question has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmls_ray.analysis.metrics import label_of
from dmls_ray.analysis.stats.formatting import ratio_text
from dmls_ray.analysis.table.model import Table, factor, measure_columns
from dmls_ray.analysis.trials.machine_speeds import machine_speeds
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.records.model import RunRecord

if TYPE_CHECKING:
    import pandas as pd

_OF_A_RANK = {label_of("train_accuracy"): "train acc. in the last epoch"}
"""What ranks measure otherwise than a run: no rank tests the trained model on training samples."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A table of the reports."""

    factors: tuple[str, ...] = ()
    """The first columns; other fields that vary follow."""
    metrics: tuple[str, ...] = ()
    """The columns after them; without any, those of the sweep's table."""
    select: Callable[[Sequence[RunRecord]], Sequence[RunRecord]] = list
    """Chooses the runs that it shows, or changes their fields."""
    by_rank: bool = False
    """Whether each rank has a row, with means over the repeats. Accuracies are over the share of the rank."""
    by_machine: bool = False
    """Whether each machine that measured whole blocks has a row, with its speed against that of the others."""
    note: str = ""
    """What its rows are, where their fields do not say it."""
    nothing: str = ""
    """Note where it shows none of the runs."""

    def frame(self, table: Table) -> pd.DataFrame:
        """The cells as texts."""
        if self.by_machine:
            return _frame_of_machines(table)
        if not self.metrics:
            return table.frame()
        # The fields that distinguish rows; the batch once.
        names = dict.fromkeys((*self.factors, *table.varied))
        names.pop("global_batch", None)
        rows = table.rows
        if self.by_rank:
            names["rank"] = None
            rows = [rank for row in rows for rank in _ranks_of(row)]
        shown = replace(table, rows=sorted(rows, key=lambda row: row.position([*names])))
        columns = [factor(name) for name in names]
        columns += measure_columns(shown, self.metrics, intervals=not self.by_rank)
        frame = shown.frame(columns)
        if self.by_rank:
            return frame.rename(columns=_OF_A_RANK)
        return frame


def _frame_of_machines(table: Table) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for machine in machine_speeds(table.rows):
        row = {"machine": machine.hosts, "lane": str(machine.lane), "kind": machine.kind, "blocks": str(machine.blocks)}
        rows.append(row | {"speed vs others [95%]": ratio_text(machine.against_others)})
    return pd.DataFrame(rows)


def _ranks_of(trial: Trial) -> list[Trial]:
    """A trial a rank, with what the rank measured; the trial itself where no run has ranks."""
    numbers: set[int | None] = {rank.rank for record in trial.counted for rank in record.ranks}
    trials = []
    for number in numbers or {None}:
        records = list(trial.records)
        for index, record in enumerate(records):
            for rank in record.ranks:
                if rank.rank == number:
                    records[index] = record.replace(metrics=dict(rank.metrics))
        trials.append(Trial(trial.trial_id, trial.factors | {"rank": number}, records))
    return trials
