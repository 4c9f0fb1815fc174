"""`Metric`: everything that tables, figures and reports need to know about one measured number.

The values are in the `metrics` of runs, epochs and ranks, by name. A number without an entry, as a user-defined
function reports it, has its name as label, a column in tables, and is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["rate", "amount", "ratio", "share", "value"]
Direction = Literal["max", "min", "none"]
Scope = Literal["run", "epoch", "rank"]
AcrossRanks = Literal["max", "min", "sum", "mean", "spread", "rank0"]
AcrossEpochs = Literal["last", "sum", "none"]
Shown = Literal["always", "if_reported", "detail"]
FormatName = Literal["seconds", "ratio", "rate", "memory", "whole", "accuracy", "number"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One measured number of a run, an epoch or a rank."""

    name: str
    """Column in runs.csv; the unit stands in the name: `exposed_comm_ms`."""
    label: str = ""
    """Heading in tables and on axes; empty for a number that is in records only."""
    kind: Kind
    """`rate`, `amount` and `ratio` are positive and compared by their logarithm; `share` lies in [0, 1]; `value` is any
    number."""
    direction: Direction
    """Whether more is better (`max`), less is better (`min`), or neither."""
    scope: Scope
    """Where the number is measured: once per run, once per epoch, or by each rank."""
    across_ranks: AcrossRanks = "rank0"
    """How the values of the ranks become the value of the run; `spread` is the largest minus the least."""
    across_epochs: AcrossEpochs = "last"
    """For scope `epoch`: whether the value of the run is that of the last epoch (of the best one with early stopping),
    the sum, or none."""
    of: str = ""
    """The value of the ranks that is combined, where it has another name than this metric."""
    part_of: str = ""
    """The metric of scope `rank`, combined as the largest, that this metric is a part of: the value of the run is that
    of the same rank, so that the parts add up."""
    share_of: str = ""
    """For a share, or a difference of shares: the metric with the number of samples that it is a share of. No
    interval claims to know it better than to one sample."""
    format: FormatName = "number"
    """How a table prints the value."""
    is_time: bool = False
    """Whether the number means nothing where runs shared the machine (search mode)."""
    is_exact: bool = False
    """Whether all repeats have the same value, so that one run says what it is."""
    is_compared: bool = False
    """Whether answers compare trials by the metric, and sweeps repeat runs for it."""
    shown: Shown = "if_reported"
    """Whether a table has a column of the metric: `always`, if any trial reports it, or, as a detail, only where
    `asked_by` says so. The files, and the page of a run, have all metrics."""
    unless: tuple[str, ...] = ()
    """Metrics that make the column of this one needless, where any trial reports one of them."""
    asked_by: tuple[str, ...] = ()
    """Fields, or families of fields, that ask for the number: where one of them varies, tables have its column, and the
    figure of the answer its panel."""
    spare: int = 0
    """When a page or a narrow terminal leaves the column out, unless the sweep asks for it: 1 first; 0: after others
    that say less."""
    interval: bool = False
    """Whether the column shows the interval besides the mean."""
    returnable: bool = False
    """Whether a user-defined function may return it under this name."""
    family: str = ""
    """Metrics of one family have their columns together; those of `speed` come first, of `loss` and `end` last."""
    doc: str = ""
    """One sentence for the metrics page of the documentation."""

    def __post_init__(self) -> None:
        if self.is_compared and not self.label:
            raise ValueError(f"metric {self.name} is compared and has no label; give it one, for tables and answers.")
