"""What `dmls-ray doctor` prints: the noise of one configuration against itself, and what of this machine makes it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import GENERIC, format_interval, ratio_text
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Interval, deviation_factors, exponential
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.trials.machine_speeds import machine_speeds
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words import amount_text, count_noun, no_metric_text
from dmls_ray.analysis.words_on_machines import disturbance_notes
from dmls_ray.cli.console import say
from dmls_ray.cli.request import Request
from dmls_ray.config.grid import Plan
from dmls_ray.config.value_texts import duration
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.records.cpu_state import CpuState, read_cpu
from dmls_ray.records.gpu_state import GpuState, held_by, open_gpus, peer_links, read_gpu
from dmls_ray.records.model import RunRecord, seconds_of_run
from dmls_ray.records.provenance import describe_environment

REPEATS = (5, 12, 30)
"""Numbers of repeats whose smallest difference is printed."""
SEEDS = (3, 5, 10, 30)
"""The same for the metric that a sweep is judged by, which differs by the seed."""
POWER = 0.8
"""Share of sweeps that show the smallest difference."""


def show_diagnosis(results: Results, plan: Plan, request: Request, console: ProgressConsole) -> None:
    """Print whether the two trials differ, which differences sweeps can show here, and the state of the machine."""
    question = SweepQuestion(varied=plan.varied, axis="seed")
    summary = SweepSummary(results, question)
    comparisons = summary.answer.answer.comparisons
    if not comparisons:
        say(console, summary.answer.headline, "bold")
        return
    say(console, "")
    # Without looks, which sweeps with a given number of repeats do not take.
    given = results.of(results.records)
    given.until, given.judged_by = None, results.judged_by
    as_given = SweepSummary(given, question).answer.answer.comparisons
    counts: Sequence[int] = REPEATS
    run_s = None
    if metric := request.options.metric:
        if as_given[0][0].measure.metric != metric:
            say(console, no_metric_text(metric))
            return
        counts, run_s = SEEDS, statistics.fmean(map(seconds_of_run, results.records))
        say(console, spread_text(metric, summary.table.rows))
    for line in noise_text(comparisons[0][0], as_given[0][0], counts, run_s):
        say(console, line)
    cpu, gpus = read_cpu(), open_gpus()
    states = list(map(read_gpu, gpus))
    say(console, "")
    for line in machine_lines(results.records[-1], cpu, states, peer_links(gpus)):
        say(console, line)
    for machine in machine_speeds(summary.table.rows):
        parts = [f"{ratio_text(machine.against_others)} of the speed of the others"]
        if machine.communication is not None:
            parts.append(f"{ratio_text(machine.communication)} of their time for communication")
        parts.append(count_noun(machine.blocks, "block"))
        say(console, f"{machine.hosts}: {', '.join(parts)}; {machine.kind}")
    for text in (*disturbance_notes(summary.table.rows), *warnings_of(cpu, states)):
        say(console, f"Warning: {text}")
    say(console, f"Runs: {results.where}")


def noise_text(
    effect: Effect, as_given: Effect, counts: Sequence[int] = REPEATS, run_s: float | None = None
) -> Iterator[str]:
    """Whether a configuration differs from itself, and the smallest differences that sweeps show.

    The smallest difference is that of `BlockModel` with `POWER`, from the spread of the paired differences and with the
    intervals of answers. Its own interval is that of the spread, of normal differences.

    Args:
        effect: of the one trial against the other, as the sweep has judged it.
        as_given: as if the number of repeats had been given.
        counts: numbers of repeats.
        run_s: seconds of a run, for what repeats of two settings take; without it, that is not said.
    """
    contrast, noun = as_given.contrast, effect.measure.noun
    text = f"A/A: {noun} {amount_text(effect)}, n={contrast.n}"
    if contrast.half_width_after is None:
        yield f"{text}; the spread is not known from fewer than 3 repeats."
        return
    if effect.verdict in ("more", "less"):
        yield (
            f"{text}: the two differ. Chance alone does that in 5 of 100 cases; if it happens again, something "
            "favours one of them."
        )
    else:
        yield f"{text}: the two do not differ beyond chance."
    yield f"Smallest difference in {noun} that {POWER:.0%} of sweeps would find here, with its interval:"
    for repeats in counts:
        size = contrast.half_width_after(repeats, POWER)
        sizes = [size, *(size * factor for factor in deviation_factors(contrast.n))]
        if effect.measure.better < 0:  # a gain, as of what is more
            sizes = [-size for size in (sizes[0], sizes[2], sizes[1])]
        if effect.measure.is_ratio:
            text = ratio_text(Interval(*map(exponential, sizes)), x=True)
        else:
            text = format_interval(Interval(*sizes), GENERIC)
        cost = "" if run_s is None else f"  {duration(2 * repeats * run_s)} for two settings"
        yield f"{repeats:4} repeats  {text}{cost}"


def spread_text(metric: str, rows: Sequence[Trial]) -> str:
    """How a metric spreads over seeds, with the interval of normal values; empty of fewer than three."""
    values = [value for row in rows for value in row.by_block(metric).values()]
    if len(values) < MIN_REPEATS:
        return ""
    deviation = statistics.stdev(values)
    spread = Interval(deviation, *(deviation * factor for factor in deviation_factors(len(values))))
    mean = GENERIC(statistics.fmean(values))
    return f"{metric} over {len(values)} seeds: mean {mean}, standard deviation {format_interval(spread, GENERIC)}"


def machine_lines(
    record: RunRecord, cpu: CpuState, gpus: Sequence[GpuState], links: Mapping[str, bool | None]
) -> Iterator[str]:
    """The state of the machine: lines for its processor, threads, versions, each GPU and each pair of GPUs.

    Args:
        record: a run on this machine.
        cpu: the processor.
        gpus: the GPUs.
        links: as `peer_links`.
    """
    parts = {
        "load": f"{cpu.load:.1f}",
        "cores": f"{cpu.cores} usable, {cpu.physical} physical, {cpu.logical} logical",
        "clock": _clock(cpu.mhz, cpu.max_mhz),
        "governor": cpu.governor or "unknown",
        "throttled by heat": "unknown" if cpu.throttled is None else f"{cpu.throttled} times since the start",
        "power limit": _watts(cpu.power_limit_w),
    }
    yield f"CPU: {_listed(parts)}"
    threads = {"of a rank": str(record.config.get("threads_per_rank") or "all")} | describe_environment()
    yield f"Threads: {_listed(threads)}"
    yield f"Versions: {_listed(record.versions)}"
    for number, gpu in enumerate(gpus):
        parts = {
            "clock": _clock(gpu.mhz, gpu.max_mhz),
            "throttled by": "unknown" if gpu.reasons is None else " and ".join(held_by(gpu.reasons)) or "nothing",
            "power limit": f"{_watts(gpu.power_limit_w)} (default {_watts(gpu.default_power_limit_w)})",
            "temperature": "unknown" if gpu.celsius is None else f"{gpu.celsius:.0f} C",
            "ECC": _WORDS[gpu.is_ecc_on],
        }
        yield f"GPU {number} ({gpu.name}): {_listed(parts)}"
    for pair, is_peer in links.items():
        yield f"GPUs {pair}: access to each other's memory {_WORDS[is_peer]}"


def warnings_of(cpu: CpuState, gpus: Sequence[GpuState]) -> Iterator[str]:
    """What makes times vary on this machine, or lower than it could have them.

    Args:
        cpu: the processor after the runs.
        gpus: the GPUs after the runs.
    """
    if cpu.governor == "powersave":
        yield "the governor powersave lets clocks follow the load; performance makes them steadier."
    if cpu.throttled:
        yield f"heat has slowed a core down {cpu.throttled} times since the machine started."
    for number, gpu in enumerate(gpus):
        if found := held_by(gpu.reasons or 0):
            yield f"GPU {number} is throttled by {' and '.join(found)} now, after the runs."
        if gpu.power_limit_w is not None and gpu.power_limit_w < (gpu.default_power_limit_w or 0):
            yield f"GPU {number} is limited to {_watts(gpu.power_limit_w)}, below its default."
        if gpu.uncorrected_errors:
            yield f"GPU {number} has had {gpu.uncorrected_errors} memory errors that ECC did not correct."


_WORDS = {True: "on", False: "off", None: "unknown"}


def _clock(mhz: float | None, max_mhz: float | None) -> str:
    if mhz is None:
        return "unknown"
    return f"{mhz:,.0f} MHz" if max_mhz is None else f"{mhz:,.0f} of {max_mhz:,.0f} MHz"


def _watts(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} W"


def _listed(parts: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {text}" for name, text in parts.items())
