"""What a step takes on machines that are not there: the ring all-reduce's model, held to what was measured.

    python benchmarks/cluster_model.py results/link_100 results/link_1000 --figures results/reference/machines

Each folder is a sweep over machines (sweeps/machines.py) under one link. Of each, the model takes the one-machine runs
and what was measured of the link before the runs trained, and predicts the runs on several machines; it takes nothing
else from those. Then it goes on to 1,024 ranks, with an interval (`extrapolate` says how) and what it assumes.

The model, in milliseconds; N ranks, r on each machine:

    buckets     DDP's: the first holds 1 MiB of fp32 gradients and each further one 25 MiB; or each bucket_cap_mib.
                Counted as if layers could be cut, which is the most there can be; compression to 16 bits halves what
                is sent of each (Li et al., VLDB 2020).
    ring        2 (N - 1) messages of 1/N of a bucket, one after the other: 2 (N - 1) x half a round trip, and
                2 (N - 1) / N x bytes at the link's bandwidth (Patarasuk & Yuan, 2009; Thakur et al., 2005). In the
                order of machines it leaves and enters each machine once, so its r ranks are one user of the link.
    hidden      in buckets       a bucket is sent once its gradients are there and the one before it is through; they
                                 come evenly in bytes while the backward pass lasts. This is the prediction.
                all hidden       nothing waits but for what exceeds the backward pass: no step is faster.
                nothing hidden   everything is sent after it: no step is slower.
    step        the one-machine step with r ranks, and by how much what the links leave exposed exceeds what was
                exposed on one machine.

A step is global_batch / images_per_s. What is exposed on one machine, and its backward pass, are DDP's timers (of the
rank that waited least: the others wait for it); a single rank has none, so its backward pass is that of the one-machine
runs with the fewest ranks above 1, or else two thirds of a pass.

- Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of Parallel and
  Distributed Computing 69 (2), 2009.
- Thakur, Rabenseifner & Gropp, Optimization of collective communication operations in MPICH, International Journal of
  High Performance Computing Applications 19 (1), 2005.
- Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, PVLDB 13 (12), 2020,
  arXiv 2006.15704.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dmls_ray import load
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.static import save
from dmls_ray.analysis.stats.formatting import RATIO, SECONDS, format_interval, format_value
from dmls_ray.analysis.stats.intervals import Estimate, Interval, estimate
from dmls_ray.config.training import DDP_ONLY
from dmls_ray.records.model import STEP_QUANTILES, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import DmlsRayError

MIB = 2**20
FIRST_BUCKET_MIB, BUCKET_MIB = 1, 25
"""DDP's defaults, in fp32 gradients."""
BYTES_SENT = {"none": 4, "fp16": 2, "bf16": 2}
"""Of a gradient, by `compression`."""
BACKWARD_SHARE = 2 / 3
"""Of a pass where nobody measured it: two products of matrices for the forward pass's one."""
RANKS = tuple(2**power for power in range(1, 11))
DRAWS = 4000

Rule = Literal["in buckets", "all hidden", "nothing hidden"]
RULES: tuple[Rule, ...] = get_args(Rule)
Values = float | NDArray[np.float64]
"""One value, or one of each draw."""


# --- the model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a prediction is made from."""

    step_ms: Values
    """Of the ranks of one machine."""
    exposed_ms: Values
    """How much of it is communication that nothing hid."""
    backward_ms: Values
    round_trip_ms: Values
    mbit_per_s: Values


def bucket_bytes(parameters: int, *, sent: int = 4, cap_mib: float | None = None) -> list[float]:
    """What is sent of each of DDP's buckets, the first to be ready first.

    Args:
        parameters: how many gradients there are.
        sent: bytes of one on its way.
        cap_mib: what a bucket holds; None for DDP's default.
    """
    left = parameters * 4.0
    first, others = (FIRST_BUCKET_MIB, BUCKET_MIB) if cap_mib is None else (cap_mib, cap_mib)
    sizes: list[float] = []
    while left > 0:
        sizes.append(min(left, (others if sizes else first) * MIB))
        left -= sizes[-1]
    return [size * sent / 4 for size in sizes]


def ring_ms(size: float, ranks: int, round_trip_ms: Values, mbit_per_s: Values) -> Values:
    """How long a ring all-reduce of so many bytes takes."""
    return 2 * (ranks - 1) * round_trip_ms / 2 + 2 * (ranks - 1) / ranks * size * 8 / 1e3 / mbit_per_s


def exposed_ms(sizes: Sequence[float], ranks: int, given: Inputs, rule: Rule = "in buckets") -> Values:
    """How long a step waits for the links after its backward pass."""
    each = [ring_ms(size, ranks, given.round_trip_ms, given.mbit_per_s) for size in sizes]
    if rule == "nothing hidden":
        return sum(each, 0.0)
    if rule == "all hidden":
        return _larger(sum(each, 0.0) - given.backward_ms, 0.0)
    through: Values = 0.0
    there = 0.0
    for size, takes in zip(sizes, each, strict=True):
        there += size / sum(sizes)
        through = _larger(through, there * given.backward_ms) + takes
    return through - given.backward_ms


def step_ms(sizes: Sequence[float], ranks: int, given: Inputs, rule: Rule = "in buckets") -> Values:
    """How long a step of so many ranks on several machines takes."""
    return given.step_ms + _larger(exposed_ms(sizes, ranks, given, rule) - given.exposed_ms, 0.0)


def _larger(one: Values, other: Values) -> Values:
    larger: Values = np.maximum(one, other)
    return larger


# --- what was measured --------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """Runs that differ in nothing but their repeat."""

    machines: int
    each: int
    """Ranks on each machine."""
    records: list[RunRecord] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        return self.machines * self.each

    @property
    def step(self) -> Estimate:
        """Milliseconds of an optimizer step."""
        return estimate([_step_ms(record) for record in self.records], "amount")

    def timer(self, name: str) -> Estimate | None:
        """One of DDP's timers, of the rank of each run that waited least; None where there are none."""
        values = []
        for record in self.records:
            known = [rank for rank in record.ranks if rank.exposed_comm_ms is not None]
            if known:
                least = min(known, key=lambda rank: rank.exposed_comm_ms or 0.0)
                values.append(float(getattr(least, name) or 0.0))
        return estimate(values, "amount") if values else None


@dataclass
class Line:
    """All runs of one folder that differ in machines and ranks_per_machine alone."""

    folder: str
    settings: dict[str, Any]
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    round_trip: Estimate | None = None
    mbit_per_s: Estimate | None = None
    sizes: list[float] = field(default_factory=list)
    """Bytes that are sent of each bucket."""
    objection: str = ""
    """Why the model does not cover it."""

    @property
    def link(self) -> str:
        """The link in words."""
        assert self.round_trip is not None
        assert self.mbit_per_s is not None
        return f"{_three(self.mbit_per_s.median)} Mbit/s, {_three(self.round_trip.median)} ms ({self.folder})"

    @property
    def single(self) -> Cell | None:
        """World size 1, without DDP."""
        return self.cells.get((1, 1))

    @property
    def is_of_both(self) -> bool:
        """Whether some runs were on one machine and others on several."""
        return len({machines > 1 for machines, _ in self.cells}) == 2

    def base(self, machines: int, each: int, *, shared: bool) -> Cell | None:
        """The one-machine runs that computation is taken from."""
        return self.cells.get((1, machines * each if shared else each))

    def inputs(self, base: Cell) -> dict[str, Estimate]:
        """What a prediction from these one-machine runs is made from, by the names of `Inputs`."""
        assert self.round_trip is not None
        assert self.mbit_per_s is not None
        return {
            "step_ms": base.step,
            "exposed_ms": base.timer("exposed_comm_ms") or estimate([0.0]),
            "backward_ms": self._backward(base),
            "round_trip_ms": self.round_trip,
            "mbit_per_s": self.mbit_per_s,
        }

    def _backward(self, base: Cell) -> Estimate:
        on_one = sorted((cell for cell in self.cells.values() if cell.machines == 1), key=lambda cell: cell.ranks)
        for cell in (base, *on_one):
            if told := cell.timer("backward_ms"):
                return told
        passes = int(base.records[0].config.get("accum_steps", 1))
        return estimate([value * BACKWARD_SHARE / passes for value in base.step.values], "amount")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A measured trial on several machines beside what the model says of it."""

    line: Line
    cell: Cell
    predicted_ms: dict[Rule, float]
    single_ms: float | None

    def error(self, rule: Rule = "in buckets") -> float:
        """By how much the prediction is too long, as a logarithm."""
        return math.log(self.predicted_ms[rule] / self.cell.step.median)


def read_lines(folders: Iterable[Path]) -> list[Line]:
    """The measured runs, line by line.

    Raises:
        StoreError: a folder holds no sweep.
    """
    lines: dict[tuple[str, str], Line] = {}
    for folder in folders:
        links: dict[str, list[RunRecord]] = {}
        for record in load(folder).records:
            if record.outcome is not Outcome.OK or record.mode != "bench" or not record.images_per_s:
                continue
            machines, settings = _placed(record)
            key = (str(folder), repr(sorted(settings.items())))
            line = lines.setdefault(key, Line(folder.name, settings))
            each = record.config["world_size"] // machines
            line.cells.setdefault((machines, each), Cell(machines, each)).records.append(record)
            links.setdefault(str(settings.get("backend")), []).append(record)
        here = [line for (owner, _), line in lines.items() if owner == str(folder)]
        for line in here:
            _complete(line, links[str(line.settings.get("backend"))])
            _take_single(line, here)
    return list(lines.values())


def _take_single(line: Line, others: Sequence[Line]) -> None:
    """One rank alone has no gradients to exchange, however the others do: it is of every line that is alike else."""
    for other in others:
        differ = {name for name in line.settings if line.settings[name] != other.settings.get(name)}
        if differ <= {*DDP_ONLY} and (1, 1) in other.cells:
            line.cells.setdefault((1, 1), other.cells[1, 1])


def _placed(record: RunRecord) -> tuple[int, dict[str, Any]]:
    """Over how many machines a run was, and its other settings."""
    follows = ("world_size", "machines", "ranks_per_machine", "global_batch")
    settings = {name: value for name, value in record.config.items() if name not in follows}
    return record.config.get("machines") or len({rank.machine for rank in record.ranks}) or 1, settings


def _complete(line: Line, records: Sequence[RunRecord]) -> None:
    """What is known of a line's link, of all runs with its backend, and of its gradients."""
    for name, of_record in (("round_trip", "link_round_trip_ms"), ("mbit_per_s", "link_mbit_per_s")):
        known = [value for record in records if (value := getattr(record, of_record))]
        setattr(line, name, estimate(known, "amount") if known else None)
    compression = line.settings.get("compression", "none")
    counts = [record.parameters for cell in line.cells.values() for record in cell.records if record.parameters]
    if line.round_trip is None or line.mbit_per_s is None:
        line.objection = "no run of it has measured a link"
    elif compression not in BYTES_SENT:
        line.objection = f"compression={compression} sends other messages than a ring's"
    elif line.settings.get("zero_redundancy"):
        line.objection = "zero_redundancy=True sends parameters besides"
    elif not counts:
        line.objection = "it does not say how many parameters there are"
    else:
        cap = line.settings.get("bucket_cap_mib")
        line.sizes = bucket_bytes(counts[0], sent=BYTES_SENT[compression], cap_mib=cap)


def _step_ms(record: RunRecord) -> float:
    config = record.config
    batch = config["batch_per_rank"] * config["world_size"] * config.get("accum_steps", 1)
    assert record.images_per_s is not None
    return float(batch / record.images_per_s * 1e3)


# --- predictions --------------------------------------------------------------------------------------------------


def predict(lines: Sequence[Line], *, shared: bool = False) -> tuple[list[Prediction], list[str]]:
    """Every measured trial on several machines beside its prediction, and of which there is none, and why.

    Args:
        lines: the measured runs.
        shared: whether the machines are hosts on one physical machine, whose ranks share its processors: computation
            is then taken from the one-machine runs with as many ranks in all.
    """
    predictions, without = [], []
    for line in lines:
        for (machines, each), cell in sorted(line.cells.items()):
            if machines == 1:
                continue
            base = line.base(machines, each, shared=shared)
            wanted = machines * each if shared else each
            missing = "" if base else f"no run of it is on one machine with ranks_per_machine={wanted}"
            if objection := line.objection or missing:
                without.append(f"{line.folder}, machines={machines} ranks_per_machine={each}: {objection}")
                continue
            assert base is not None
            given = Inputs(**{name: told.median for name, told in line.inputs(base).items()})
            told = {rule: float(step_ms(line.sizes, cell.ranks, given, rule)) for rule in RULES}
            single_ms = line.single.step.median if line.single else None
            predictions.append(Prediction(line=line, cell=cell, predicted_ms=told, single_ms=single_ms))
    return predictions, without


def draws_of(value: Estimate, noise: np.random.Generator) -> Values:
    """Where the truth may lie, by the value's own interval, as a lognormal; the value alone where it has no spread."""
    if value.low is None or value.high is None or value.low <= 0:
        return value.median
    spread = math.log(value.high / value.low) / 2 / 1.96
    drawn: NDArray[np.float64] = value.median * np.exp(spread * noise.standard_normal(DRAWS))
    return drawn


def extrapolate(
    line: Line, each: int, errors: Sequence[float], ranks: Sequence[int] = RANKS
) -> dict[int, tuple[Interval, Interval | None]]:
    """ranks -> step time and efficiency, on machines of `each` ranks, each with processors of its own.

    The interval is the middle 95% of draws: each input from its own interval, all apart, and the step time times what
    the model may err by: from Student's distribution with as many degrees of freedom as there are measured trials on
    several machines, scaled by the root mean square of their errors. So a model that errs to one side is not corrected;
    its interval is wider. There is none where inputs were measured less than three times, or fewer than three trials.

    Args:
        line: where the inputs come from.
        each: ranks on a machine.
        errors: of the predictions of measured trials, as logarithms.
        ranks: how many to predict for.
    """
    base = line.cells[1, each]
    told, noise = line.inputs(base), np.random.default_rng(0)
    middle = Inputs(**{name: value.median for name, value in told.items()})
    drawn = Inputs(**{name: draws_of(value, noise) for name, value in told.items()})
    single = line.single
    single_drawn = drawn.step_ms if single is base else draws_of(single.step, noise) if single else None
    is_spread = len(errors) >= 3 and all(value.low is not None for value in told.values() if value.median)
    scale = math.sqrt(sum(error**2 for error in errors) / max(len(errors), 1))
    off = np.exp(scale * noise.standard_t(max(len(errors), 1), DRAWS))
    found: dict[int, tuple[Interval, Interval | None]] = {}
    for count in ranks:
        if count % each or count <= each:
            continue
        centre = float(step_ms(line.sizes, count, middle))
        steps = step_ms(line.sizes, count, drawn) * off
        step = _interval(centre, steps if is_spread else None)
        efficiency = None
        if single is not None and single_drawn is not None:
            efficiency = _interval(single.step.median / centre, single_drawn / steps if is_spread else None)
        found[count] = (step, efficiency)
    return found


def _interval(centre: float, drawn: Values | None) -> Interval:
    if drawn is None:
        return Interval(centre, None, None)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(centre, float(low), float(high))


# --- what is told -------------------------------------------------------------------------------------------------


def told_settings(lines: Sequence[Line]) -> list[dict[str, str]]:
    """Of each line, the settings that differ between them."""
    names = dict.fromkeys(name for line in lines for name in line.settings)
    differ = [name for name in names if len({repr(line.settings.get(name)) for line in lines}) > 1]
    return [{name: str(line.settings.get(name)) for name in differ} for line in lines]


def table_of(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """A row a measured trial: measured, predicted by each rule, and how far off."""
    rows = []
    for item, differs in zip(predictions, told_settings([item.line for item in predictions]), strict=True):
        measured = item.cell.step
        row = {
            "link": item.line.link,
            **differs,
            "machines": str(item.cell.machines),
            "ranks_per_machine": str(item.cell.each),
            "step ms [95%]": format_interval(measured, SECONDS),
            "n": str(measured.n),
            **{f"predicted, {rule}": SECONDS(item.predicted_ms[rule]) for rule in RULES},
            "in buckets is off by": f"{math.expm1(item.error()):+.0%}",
        }
        if item.single_ms is not None:
            row["efficiency"] = RATIO(item.single_ms / measured.median)
            row["predicted"] = RATIO(item.single_ms / item.predicted_ms["in buckets"])
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def sentences_of(predictions: Sequence[Prediction]) -> list[str]:
    """How far the model is off, rule by rule."""
    lines = []
    for rule in RULES:
        off = [abs(math.expm1(item.error(rule))) for item in predictions]
        lines.append(
            f"Predicted step times, {rule}: median absolute error {statistics.median(off):.1%} of the measured, from "
            f"{min(off):.1%} to {max(off):.1%} (n={len(off)} trials on several machines)."
        )
    apart = [
        abs(item.single_ms / item.predicted_ms["in buckets"] - item.single_ms / item.cell.step.median)
        for item in predictions
        if item.single_ms is not None
    ]
    if apart:
        lines.append(
            f"Predicted efficiency, in buckets: median absolute error {statistics.median(apart):.3f} (n={len(apart)})."
        )
    return lines


def extrapolated_table(lines: Sequence[Line], errors: Sequence[float]) -> pd.DataFrame:
    """A row a link, ranks_per_machine and number of ranks."""
    rows = []
    for line, differs in zip(lines, told_settings(lines), strict=True):
        for each in _sizes_on_one(line):
            given = Inputs(**{name: told.median for name, told in line.inputs(line.cells[1, each]).items()})
            for count, (step, efficiency) in extrapolate(line, each, errors).items():
                ends = [float(step_ms(line.sizes, count, given, rule)) for rule in ("all hidden", "nothing hidden")]
                rows.append(
                    {
                        "link": line.link,
                        **differs,
                        "ranks_per_machine": str(each),
                        "ranks": f"{count:,}",
                        "machines": f"{count // each:,}",
                        "step ms [95%]": format_interval(step, SECONDS),
                        "all hidden to nothing hidden": " to ".join(
                            format_value(Interval(end, step.low, step.high), SECONDS) for end in ends
                        ),
                        "efficiency [95%]": format_interval(efficiency, RATIO),
                    }
                )
    return pd.DataFrame(rows)


def assumptions(lines: Sequence[Line], predictions: Sequence[Prediction]) -> list[str]:
    """What must hold for the extrapolation to, in sentences."""
    most = max((item.cell.ranks for item in predictions), default=1)
    return [
        "Weak scaling: every rank has the batch of its one-machine run, and every machine is like that one, with "
        "processors of its own.",
        "One flat ring in the order of machines, on full-duplex links that nobody else uses, behind a switch that is "
        "never the bottleneck; each hop takes as long as one between machines. NCCL takes trees where they are faster, "
        "and their latency grows with the logarithm of the ranks.",
        "Sending costs no processor time, adding up what comes is part of the measured bandwidth, and what batch norm "
        "broadcasts and what DDP itself does on a machine with one rank are left out.",
        f"No stragglers: a step waits for the slowest rank, who is the later the more there are{_lateness(lines)}.",
        f"The interval takes the model to be off as far at any number of ranks as at {most} or fewer, where it was "
        f"measured; beyond {4 * most} that is a drawing on paper.",
    ]


def _lateness(lines: Sequence[Line]) -> str:
    """How much later than usual the latest of a hundred steps is, on one machine."""
    late, usual = STEP_QUANTILES.index(0.99), STEP_QUANTILES.index(0.5)
    ratios = [
        rank.step_ms_quantiles[late] / rank.step_ms_quantiles[usual]
        for line in lines
        for cell in line.cells.values()
        if cell.machines == 1
        for record in cell.records
        for rank in record.ranks
        if len(rank.step_ms_quantiles) == len(STEP_QUANTILES)
    ]
    if not ratios:
        return ""
    return (
        f" (on one machine a step in a hundred took {statistics.median(ratios):.2f} times the median step or longer, "
        "and of a hundred ranks one would be so late in most steps)"
    )


def chart(lines: Sequence[Line], predictions: Sequence[Prediction], notes: Sequence[str] = ()) -> Chart:
    """Step time and efficiency against ranks: measured points, the model's curves and their intervals."""
    errors = [item.error() for item in predictions]
    panels = []
    for each in sorted({each for line in lines for each in _sizes_on_one(line)}):
        steps: list[Series] = []
        efficiencies: list[Series] = []
        for line, differs in zip(lines, told_settings(lines), strict=True):
            if (1, each) not in line.cells:
                continue
            name = " ".join([line.link, *(f"{key}={value}" for key, value in differs.items())])
            cells = sorted((cell for cell in line.cells.values() if cell.each == each), key=lambda cell: cell.ranks)
            found = extrapolate(line, each, errors)
            steps += [_points(name, cells, None), *_curve(name, {count: step for count, (step, _) in found.items()})]
            if line.single:
                known = {count: value for count, (_, value) in found.items() if value is not None}
                efficiencies += [_points(name, cells, line.single.step.median), *_curve(name, known)]
        on_each = f"{each} rank{'' if each == 1 else 's'} on each machine"
        x = Axis("world_size (ranks)", log=True)
        panels.append(Panel(x=x, y=Axis("optimizer step (ms)", log=True), series=steps, title=on_each))
        if efficiencies:
            y = Axis("efficiency (speed-up / ranks)", from_zero=True)
            panels.append(Panel(x=x, y=y, series=efficiencies, title=on_each))
    title = "Machines that are not there: the ring all-reduce's model"
    return Chart(name="cluster_model", title=title, panels=panels, notes=notes)


def _points(name: str, cells: Sequence[Cell], single_ms: float | None) -> Series:
    """Measured step times, or efficiencies against a single rank's."""
    values = [cell.step for cell in cells]
    if single_ms is not None:
        values = [estimate([single_ms / step for step in value.values], "ratio") for value in values]
    return Series(
        name=name,
        x=[float(cell.ranks) for cell in cells],
        y=[value.median for value in values],
        low=[value.low for value in values] if all(value.low is not None for value in values) else (),
        high=[value.high for value in values] if all(value.high is not None for value in values) else (),
    )


def _curve(name: str, found: Mapping[int, Interval]) -> list[Series]:
    """The model's curve, and its interval where there is one."""
    x = [float(count) for count in found]
    curve = Series(name="ring model", kind="line", x=x, y=[value.centre for value in found.values()], dashed=True,
                   same_as=name)  # fmt: skip
    low = [value.low for value in found.values() if value.low is not None]
    high = [value.high for value in found.values() if value.high is not None]
    if len(low) < len(x):
        return [curve]
    return [curve, Series(name="ring model, 95%", kind="band", x=x, y=[], low=low, high=high, same_as=name)]


def _sizes_on_one(line: Line) -> list[int]:
    """ranks_per_machine of the one-machine runs that some run on several machines had, too; all where none had."""
    on_one = sorted(each for machines, each in line.cells if machines == 1)
    on_several = {each for machines, each in line.cells if machines > 1}
    return [each for each in on_one if each in on_several] or on_one


def _three(value: float) -> str:
    return f"{float(f'{value:.3g}'):,g}"


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a sweep over machines, under one link")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw cluster_model.png and .svg there")
    parser.add_argument(
        "--shared-processors",
        action="store_true",
        help="the machines are hosts on one physical machine: what computation takes with so many ranks in all is "
        "taken from one-machine runs with as many",
    )
    given = parser.parse_args()
    try:
        lines = read_lines(given.folders)
    except DmlsRayError as error:
        parser.error(str(error))
    predictions, without = predict(lines, shared=given.shared_processors)
    if not predictions:
        why = without[0] if without else "no run is on several machines"
        parser.error(f"{', '.join(map(str, given.folders))}: nothing to predict; {why}. Run sweeps/machines.py with "
                     "--machines 1 2.")  # fmt: skip
    covered = [line for line in lines if not line.objection and line.is_of_both]
    errors = [item.error() for item in predictions]
    print(table_of(predictions).to_markdown(index=False, disable_numparse=True) + "\n")
    print("\n".join([*sentences_of(predictions), *(f"Left out: {reason}." for reason in without)]) + "\n")
    print(extrapolated_table(covered, errors).to_markdown(index=False, disable_numparse=True) + "\n")
    notes = assumptions(covered, predictions)
    print("\n".join(notes))
    if given.figures:
        print("\n" + "\n".join(str(path) for path in save(chart(covered, predictions, notes), given.figures)))


if __name__ == "__main__":
    main()
