"""Runs on one machine and on several as the ring model's inputs, its predictions and its extrapolation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ring_model import BYTES_SENT, RULES, Inputs, Rule, Values, bucket_bytes, step_ms
from dmls_ray import load
from dmls_ray.analysis.stats.intervals import Estimate, Interval, estimate
from dmls_ray.config.training import DDP_ONLY
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

BACKWARD_SHARE = 2 / 3
"""Backward share of a pass where it was not measured: two matrix products for each one of the forward pass."""
RANKS = tuple(2**power for power in range(1, 11))
DRAWS = 4000


@dataclass
class Cell:
    """Runs that differ only in their repeat."""

    machines: int
    ranks_per_machine: int
    records: list[RunRecord] = field(default_factory=list)

    @property
    def ranks(self) -> int:
        return self.machines * self.ranks_per_machine

    @property
    def step(self) -> Estimate:
        """Milliseconds per optimizer step."""
        return estimate([_step_ms(record) for record in self.records], "amount")

    def timer(self, name: str) -> Estimate | None:
        """One of DDP's timers, on the rank of each run that waited least; None if no rank has it."""
        values = []
        for record in self.records:
            timed = [rank for rank in record.ranks if rank.metrics.get("exposed_comm_ms") is not None]
            if timed:
                least = min(timed, key=lambda rank: rank.metrics["exposed_comm_ms"] or 0.0)
                values.append(float(least.metrics.get(name, 0.0)))
        return estimate(values, "amount") if values else None


@dataclass
class Line:
    """All runs of one folder that differ only in machines and ranks_per_machine."""

    folder: str
    settings: dict[str, Any]
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    round_trip: Estimate | None = None
    mbit_per_s: Estimate | None = None
    sizes: list[float] = field(default_factory=list)
    """Bytes sent for each bucket."""
    objection: str = ""
    """Reason why the model does not cover these runs."""

    @property
    def link(self) -> str:
        """Rate and round trip of the link, and the folder."""
        assert self.round_trip is not None
        assert self.mbit_per_s is not None
        return (
            f"{three_digits(self.mbit_per_s.centre)} Mbit/s, {three_digits(self.round_trip.centre)} ms ({self.folder})"
        )

    @property
    def single(self) -> Cell | None:
        """Runs at world size 1, without DDP."""
        return self.cells.get((1, 1))

    @property
    def is_of_both(self) -> bool:
        """Whether there are runs on one machine and on several."""
        return len({machines > 1 for machines, _ in self.cells}) == 2

    def base(self, machines: int, ranks_per_machine: int, *, shared: bool) -> Cell | None:
        """The one-machine runs that give the time of computation."""
        return self.cells.get((1, machines * ranks_per_machine if shared else ranks_per_machine))

    def inputs(self, base: Cell) -> dict[str, Estimate]:
        """Inputs of a prediction from these one-machine runs, by the names of `Inputs`."""
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
            if measured := cell.timer("backward_ms"):
                return measured
        passes = int(base.records[0].config.get("accum_steps", 1))
        return estimate([value * BACKWARD_SHARE / passes for value in base.step.values], "amount")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A measured trial on several machines with its prediction."""

    line: Line
    cell: Cell
    predicted_ms: dict[Rule, float]
    single_ms: float | None

    def error(self, rule: Rule = "in buckets") -> float:
        """Logarithm of predicted over measured step time."""
        return math.log(self.predicted_ms[rule] / self.cell.step.centre)


def read_lines(folders: Iterable[Path]) -> list[Line]:
    """The measured runs, grouped by everything but machines and ranks_per_machine.

    Raises:
        StoreError: a folder holds no sweep.
    """
    lines: dict[tuple[str, str], Line] = {}
    for folder in folders:
        links: dict[str, list[RunRecord]] = {}
        for record in load(folder).records:
            if record.outcome is not Outcome.OK or record.mode != "bench" or not record.metrics["images_per_s"]:
                continue
            machines, settings = _machines_and_settings(record)
            key = (str(folder), repr(sorted(settings.items())))
            line = lines.setdefault(key, Line(folder.name, settings))
            size = record.config["world_size"] // machines
            line.cells.setdefault((machines, size), Cell(machines, size)).records.append(record)
            links.setdefault(str(settings.get("backend")), []).append(record)
        here = [line for (owner, _), line in lines.items() if owner == str(folder)]
        for line in here:
            _complete(line, links[str(line.settings.get("backend"))])
            _take_single(line, here)
    return list(lines.values())


def _take_single(line: Line, lines: Sequence[Line]) -> None:
    """Add the runs of a single rank to every line that differs only in options of DDP, which a single rank ignores."""
    for candidate in lines:
        differ = {name for name in line.settings if line.settings[name] != candidate.settings.get(name)}
        if differ <= {*DDP_ONLY} and (1, 1) in candidate.cells:
            line.cells.setdefault((1, 1), candidate.cells[1, 1])


def _machines_and_settings(record: RunRecord) -> tuple[int, dict[str, Any]]:
    """Number of machines of a run, and its settings besides ranks and machines."""
    follows = ("world_size", "machines", "ranks_per_machine", "global_batch")
    settings = {name: value for name, value in record.config.items() if name not in follows}
    return record.config.get("machines") or len({rank.machine for rank in record.ranks}) or 1, settings


def _complete(line: Line, records: Sequence[RunRecord]) -> None:
    """Set the link of a line, from all runs with its backend, and the bytes of its gradients."""
    for name, of_record in (("round_trip", "link_round_trip_ms"), ("mbit_per_s", "link_mbit_per_s")):
        values = [value for record in records if (value := record.metrics.get(of_record))]
        setattr(line, name, estimate(values, "amount") if values else None)
    compression = line.settings.get("compression", "none")
    counts = [
        int(record.metrics["parameters"])
        for cell in line.cells.values()
        for record in cell.records
        if "parameters" in record.metrics
    ]
    if line.round_trip is None or line.mbit_per_s is None:
        line.objection = "no run measured a link"
    elif compression not in BYTES_SENT:
        line.objection = f"compression={compression} does not use a ring all-reduce"
    elif line.settings.get("zero_redundancy"):
        line.objection = "zero_redundancy=True sends parameters in addition"
    elif not counts:
        line.objection = "the records have no number of parameters"
    else:
        cap = line.settings.get("bucket_cap_mib")
        line.sizes = bucket_bytes(counts[0], sent=BYTES_SENT[compression], cap_mib=cap)


def _step_ms(record: RunRecord) -> float:
    config = record.config
    batch = config["batch_per_rank"] * config["world_size"] * config.get("accum_steps", 1)
    assert record.metrics.get("images_per_s") is not None
    return float(batch / record.metrics["images_per_s"] * 1e3)


def predict(lines: Sequence[Line], *, shared: bool = False) -> tuple[list[Prediction], list[str]]:
    """Every measured trial on several machines with its prediction, and the reason for each that has none.

    Args:
        lines: the measured runs.
        shared: whether the machines are hosts on one physical machine and share its processors. Computation then takes
            as long as in the one-machine runs with the same total number of ranks.
    """
    predictions, without = [], []
    for line in lines:
        for (machines, ranks_per_machine), cell in sorted(line.cells.items()):
            if machines == 1:
                continue
            base = line.base(machines, ranks_per_machine, shared=shared)
            wanted = machines * ranks_per_machine if shared else ranks_per_machine
            missing = "" if base else f"no run is on one machine with ranks_per_machine={wanted}"
            if objection := line.objection or missing:
                without.append(f"{line.folder}, machines={machines} ranks_per_machine={ranks_per_machine}: {objection}")
                continue
            assert base is not None
            inputs = Inputs(**{name: value.centre for name, value in line.inputs(base).items()})
            predicted_ms = {rule: float(step_ms(line.sizes, cell.ranks, inputs, rule)) for rule in RULES}
            single_ms = line.single.step.centre if line.single else None
            predictions.append(Prediction(line=line, cell=cell, predicted_ms=predicted_ms, single_ms=single_ms))
    return predictions, without


def draws_of(value: Estimate, noise: np.random.Generator) -> Values:
    """Draws from a log-normal distribution with the interval of the value; the value itself if it has no interval."""
    if value.low is None or value.high is None or value.low <= 0:
        return value.centre
    spread = math.log(value.high / value.low) / 2 / 1.96
    drawn: NDArray[np.float64] = value.centre * np.exp(spread * noise.standard_normal(DRAWS))
    return drawn


def extrapolate(
    line: Line, ranks_per_machine: int, errors: Sequence[float], ranks: Sequence[int] = RANKS
) -> dict[int, tuple[Interval, Interval | None]]:
    """Number of ranks -> step time and efficiency, on machines that do not share processors.

    The interval is the middle 95% of draws. Each input is drawn independently from its interval. The step time is
    multiplied by an error of the model: from Student's distribution with as many degrees of freedom as there are
    measured trials on several machines, scaled by the root mean square of their errors. A bias of the model is not
    corrected; it widens the interval. There is no interval with fewer than three repeats or three trials.

    Args:
        line: the runs that give the inputs.
        ranks_per_machine: number of ranks on each machine.
        errors: logarithmic errors of the predictions of measured trials.
        ranks: numbers of ranks to predict for.
    """
    base = line.cells[1, ranks_per_machine]
    estimates, noise = line.inputs(base), np.random.default_rng(0)
    middle = Inputs(**{name: value.centre for name, value in estimates.items()})
    drawn = Inputs(**{name: draws_of(value, noise) for name, value in estimates.items()})
    single = line.single
    single_drawn = drawn.step_ms if single is base else draws_of(single.step, noise) if single else None
    is_spread = len(errors) >= 3 and all(value.low is not None for value in estimates.values() if value.centre)
    scale = math.sqrt(sum(error**2 for error in errors) / max(len(errors), 1))
    off = np.exp(scale * noise.standard_t(max(len(errors), 1), DRAWS))
    predictions: dict[int, tuple[Interval, Interval | None]] = {}
    for count in ranks:
        if count % ranks_per_machine or count <= ranks_per_machine:
            continue
        centre = float(step_ms(line.sizes, count, middle))
        steps = step_ms(line.sizes, count, drawn) * off
        step = _interval(centre, steps if is_spread else None)
        efficiency = None
        if single is not None and single_drawn is not None:
            efficiency = _interval(single.step.centre / centre, single_drawn / steps if is_spread else None)
        predictions[count] = (step, efficiency)
    return predictions


def _interval(centre: float, drawn: Values | None) -> Interval:
    if drawn is None:
        return Interval(centre, None, None)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(centre, float(low), float(high))


def three_digits(value: float) -> str:
    """The value with three significant digits and thousands separated."""
    return f"{float(f'{value:.3g}'):,g}"
