"""Predict the step time on more machines than were measured, and compare the prediction with what was measured.

    python benchmarks/cluster_model.py results/link_100 results/link_1000 --figures results/reference/machines

Each folder is a sweep over machines (sweeps/machines.py) under one link. From each folder the model (`ring_model.py`)
takes only the one-machine runs and the link's measurements from before training, and predicts the runs on several
machines. Then it extrapolates to 1,024 ranks, with an interval (see `extrapolate`) and its assumptions.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.cluster_runs import Cell, Line, Prediction, extrapolate, predict, read_lines
from benchmarks.ring_model import RULES, Inputs, step_ms
from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.analysis.figures.chart import Axis, Chart, Panel, Series
from dmls_ray.analysis.figures.vega import save
from dmls_ray.analysis.stats.formatting import RATIO, SECONDS, format_interval, format_value
from dmls_ray.analysis.stats.intervals import Interval, estimate
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES
from dmls_ray.util.errors import DmlsRayError


def differing_settings(lines: Sequence[Line]) -> list[dict[str, str]]:
    """For each line, the settings that differ between the lines."""
    names = dict.fromkeys(name for line in lines for name in line.settings)
    differ = [name for name in names if len({repr(line.settings.get(name)) for line in lines}) > 1]
    return [{name: str(line.settings.get(name)) for name in differ} for line in lines]


def table_of(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """One row per measured trial: measured, predicted by each rule, and the error."""
    rows = []
    for item, differs in zip(predictions, differing_settings([item.line for item in predictions]), strict=True):
        measured = item.cell.step
        row = {
            "link": item.line.link,
            **differs,
            "machines": str(item.cell.machines),
            "ranks_per_machine": str(item.cell.ranks_per_machine),
            "step ms [95%]": format_interval(measured, SECONDS),
            "n": str(measured.n),
            **{f"predicted, {rule}": SECONDS(item.predicted_ms[rule]) for rule in RULES},
            "in buckets is off by": f"{math.expm1(item.error()):+.0%}",
        }
        if item.single_ms is not None:
            row["efficiency"] = RATIO(item.single_ms / measured.centre)
            row["predicted"] = RATIO(item.single_ms / item.predicted_ms["in buckets"])
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def sentences_of(predictions: Sequence[Prediction]) -> list[str]:
    """Errors of the model by rule."""
    lines = []
    for rule in RULES:
        off = [abs(math.expm1(item.error(rule))) for item in predictions]
        lines.append(
            f"Predicted step times, {rule}: median absolute error {statistics.median(off):.1%} of the measured, from "
            f"{min(off):.1%} to {max(off):.1%} (n={len(off)} trials on several machines)."
        )
    errors = [
        abs(item.single_ms / item.predicted_ms["in buckets"] - item.single_ms / item.cell.step.centre)
        for item in predictions
        if item.single_ms is not None
    ]
    if errors:
        lines.append(
            f"Predicted efficiency, in buckets: median absolute error {statistics.median(errors):.3f} "
            f"(n={len(errors)})."
        )
    return lines


def extrapolated_table(lines: Sequence[Line], errors: Sequence[float]) -> pd.DataFrame:
    """One row per link, ranks_per_machine and number of ranks."""
    rows = []
    for line, differs in zip(lines, differing_settings(lines), strict=True):
        for each in _extrapolated_sizes(line):
            inputs = Inputs(**{name: value.centre for name, value in line.inputs(line.cells[1, each]).items()})
            for count, (step, efficiency) in extrapolate(line, each, errors).items():
                ends = [float(step_ms(line.sizes, count, inputs, rule)) for rule in ("all hidden", "nothing hidden")]
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
    """Assumptions of the extrapolation, in sentences."""
    most = max((item.cell.ranks for item in predictions), default=1)
    return [
        "Weak scaling: every rank has the batch of its one-machine run, and every machine is like that machine and "
        "shares no processors.",
        "One flat ring in the order of machines, on full-duplex links without other traffic, behind a switch that is "
        "never the bottleneck. Each hop takes as long as a hop between machines. NCCL uses trees where they are "
        "faster; their latency grows with the logarithm of the number of ranks.",
        "Sending costs no processor time, and adding received gradients is part of the measured bandwidth. The "
        "broadcasts of batch norm and DDP's work on a machine with one rank are left out.",
        f"No stragglers. A real step waits for the slowest rank, whose delay grows with their number"
        f"{_lateness(lines)}.",
        f"The interval assumes the same error of the model at any number of ranks as at {most} or fewer, where it was "
        f"measured. Beyond {4 * most} ranks that assumption is untested.",
    ]


def _lateness(lines: Sequence[Line]) -> str:
    """The 99th percentile of step times relative to their median, on one machine, as a parenthesis."""
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
        f" (on one machine 1% of steps took {statistics.median(ratios):.2f} times the median step or longer; with a "
        "hundred ranks, most steps would have such a rank)"
    )


def chart(lines: Sequence[Line], predictions: Sequence[Prediction], notes: Sequence[str] = ()) -> Chart:
    """Step time and efficiency against ranks: measured points, the model's curves and their intervals."""
    errors = [item.error() for item in predictions]
    panels = []
    for each in sorted({each for line in lines for each in _extrapolated_sizes(line)}):
        steps: list[Series] = []
        efficiencies: list[Series] = []
        for line, differs in zip(lines, differing_settings(lines), strict=True):
            if (1, each) not in line.cells:
                continue
            name = " ".join([line.link, *(f"{key}={value}" for key, value in differs.items())])
            cells = sorted(
                (cell for cell in line.cells.values() if cell.ranks_per_machine == each), key=lambda cell: cell.ranks
            )
            predicted = extrapolate(line, each, errors)
            steps += [
                _points(name, cells, None),
                *_curve(name, {count: step for count, (step, _) in predicted.items()}),
            ]
            if line.single:
                efficiency_by_ranks = {count: value for count, (_, value) in predicted.items() if value is not None}
                efficiencies += [_points(name, cells, line.single.step.centre), *_curve(name, efficiency_by_ranks)]
        on_each = f"{each} rank{'' if each == 1 else 's'} on each machine"
        x = Axis("world_size (ranks)", log=True)
        panels.append(Panel(x=x, y=Axis("optimizer step (ms)", log=True), series=steps, title=on_each))
        if efficiencies:
            y = Axis("efficiency (speed-up / ranks)", from_zero=True)
            panels.append(Panel(x=x, y=y, series=efficiencies, title=on_each))
    title = "Predicted for more machines: the model of a ring all-reduce"
    return Chart(name="cluster_model", title=title, panels=panels, notes=notes)


def _points(name: str, cells: Sequence[Cell], single_ms: float | None) -> Series:
    """Measured step times, or efficiencies relative to a single rank."""
    values = [cell.step for cell in cells]
    if single_ms is not None:
        values = [estimate([single_ms / step for step in value.values], "ratio") for value in values]
    return Series(
        name=name,
        x=[float(cell.ranks) for cell in cells],
        y=[value.centre for value in values],
        low=[value.low for value in values] if all(value.low is not None for value in values) else (),
        high=[value.high for value in values] if all(value.high is not None for value in values) else (),
    )


def _curve(name: str, predicted: Mapping[int, Interval]) -> list[Series]:
    """The model's curve, and its interval if there is one."""
    x = [float(count) for count in predicted]
    curve = Series(name="ring model", kind="line", x=x, y=[value.centre for value in predicted.values()], dashed=True,
                   same_as=name)  # fmt: skip
    low = [value.low for value in predicted.values() if value.low is not None]
    high = [value.high for value in predicted.values() if value.high is not None]
    if len(low) < len(x):
        return [curve]
    return [curve, Series(name="ring model, 95%", kind="band", x=x, y=[], low=low, high=high, same_as=name)]


def _extrapolated_sizes(line: Line) -> list[int]:
    """ranks_per_machine of one-machine runs that also occur on several machines; all of them if none does."""
    on_one = sorted(each for machines, each in line.cells if machines == 1)
    on_several = {each for machines, each in line.cells if machines > 1}
    return [each for each in on_one if each in on_several] or on_one


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a sweep over machines, over one link")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw cluster_model.png, .svg and .pdf there")
    parser.add_argument(
        "--shared-processors",
        action="store_true",
        help="the machines are hosts on one physical machine: take the time of computation from one-machine runs with "
        "the same total number of ranks",
    )
    arguments = parser.parse_args()
    try:
        lines = read_lines(arguments.folders)
    except DmlsRayError as error:
        parser.error(str(error))
    predictions, without = predict(lines, shared=arguments.shared_processors)
    if not predictions:
        why = without[0] if without else "no run is on several machines"
        parser.error(
            f"{', '.join(map(str, arguments.folders))}: nothing to predict; {why}. Run sweeps/machines.py with "
            "--machines 1 2."
        )
    covered = [line for line in lines if not line.objection and line.is_of_both]
    errors = [item.error() for item in predictions]
    print(markdown(table_of(predictions)) + "\n")
    print("\n".join([*sentences_of(predictions), *(f"Left out: {reason}." for reason in without)]) + "\n")
    print(markdown(extrapolated_table(covered, errors)) + "\n")
    notes = assumptions(covered, predictions)
    print("\n".join(notes))
    if arguments.figures:
        print("\n" + "\n".join(str(path) for path in save([chart(covered, predictions, notes)], arguments.figures)))


if __name__ == "__main__":
    main()
