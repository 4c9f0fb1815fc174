"""`Options`: how a sweep is run, apart from what it varies."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Literal

from dmls_ray.config.fields import field_defaults, field_specs, set_checked, setting
from dmls_ray.config.run_limits import RunLimits
from dmls_ray.config.until import Until
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.quantities import seconds_of, share_of
from dmls_ray.util.text import check_utf8
from dmls_ray.util.uri import check_location, is_uri, without_file_scheme

Isolation = Literal["group", "per_run"]
Mode = Literal["bench", "search"]

GRIDS = ("grid", "random")
"""Searchers of this package, which know all of their runs beforehand."""

SEARCH_ONLY = ("searcher", "samples", "scheduler", "metric", "goal")
"""Options that apply to search mode only."""


UNTIL = tuple(spec.name for spec in fields(Until))
"""Options that apply where the sweep decides how often it repeats its trials."""

SCRIPT_FIELDS = ("name", "axis", "question", "layout")
"""Options that a script sets and that are no flags."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a sweep is run, apart from what it varies. Every field but the first four is a flag.

    Raises:
        ConfigError: a value breaks a rule of its field.
    """

    name: str = "sweep"
    """Name of the results folder: results/<name>."""
    axis: str | None = None
    """Field that the sweep asks about; without it, the first that varies."""
    question: str = ""
    """Question that the sweep asks, in words; the report begins with it."""
    layout: str | None = None
    """Name of a report's table that is printed at the end instead of the sweep's: machines, say."""
    mode: Mode = "bench"
    """bench: one run at a time, so that times can be compared; search: runs share the ranks, and poor ones are stopped
    early."""
    searcher: str = "grid"
    """Search mode: grid (every combination), random, or one of Ray Tune's: optuna, hyperopt, bayesopt, ..."""
    samples: int = setting(16, at_least=1)
    """Search mode: how many configurations a searcher other than grid proposes."""
    scheduler: Literal["asha", "median", "none"] = "asha"
    """Search mode: rule by which poor runs are stopped after an epoch: Ray Tune's ASHA or its median rule."""
    metric: str = "test_accuracy"
    """Search mode: metric to optimize; any that the workload reports for an epoch."""
    goal: Literal["auto", "max", "min"] = "auto"
    """Search mode: whether the metric is maximized or minimized; auto: by its entry in the registry; a
    metric without one is minimized if it is a loss."""
    repeats: int | None = setting(None, at_least=1, or_none=True, none_word="auto")
    """Runs of each trial, each with its own seed. auto, the default: 3, and then more until the comparisons are
    decided; in search mode 1."""
    within: float = setting(Until.within, above=0, below=1, reads=share_of)
    """Half-width of an interval from which on a comparison needs no further repeat: 5% of a ratio, 0.05 of an
    accuracy."""
    equivalent: float = setting(Until.equivalent, at_least=0, below=1, reads=share_of)
    """Two trials whose interval shows that they differ by less are equal, and need no further repeat."""
    max_repeats: int = setting(Until.max_repeats, at_least=3)
    """Most repeats of a trial."""
    budget: float | None = setting(Until.budget, at_least=0, or_none=True, reads=seconds_of)
    """Time for repeats beyond the third, 90s, 20m or 2h, say; no block of repeats starts that would not end in it.
    none: no limit."""
    race: bool = False
    """Leave a trial out of further repeats once it is beaten for the --aim."""
    aim: Literal["throughput", "accuracy", "time-to-accuracy", "memory"] | None = None
    """What trials race for: most throughput, highest accuracy, shortest time to --target-accuracy, least memory."""
    order_seed: int = setting(0, at_least=0)
    """Seed of the order of runs within a block."""
    out: str | None = None
    """Results folder, or its URI (s3://BUCKET/NAME, gs://BUCKET/NAME); without it, results/<sweep>."""
    fresh: bool = False
    """Start over in a new folder; nothing is deleted."""
    stale: bool = False
    """Include runs of earlier versions of your code and data in the results."""
    isolation: Isolation = "group"
    """group: one worker group serves all runs; per_run: a TorchTrainer a run, in fresh processes."""
    address: str | None = None
    """Ray cluster to join; without it RAY_ADDRESS, a cluster that runs on this machine, or a new one."""
    oversubscribe: bool = False
    """Allow more ranks than CPU cores."""
    max_retries: int = setting(RunLimits.max_retries, at_least=0)
    """How often a run that was killed or timed out is started again."""
    run_timeout: float | None = setting(RunLimits.run_timeout, above=0, or_none=True)
    """Seconds that an attempt at a run may take; without it, no limit."""
    stall_timeout: float | None = setting(RunLimits.stall_timeout, above=0, or_none=True)
    """Seconds without an optimizer step, a test batch or an event after which a run is ended, and without a request for
    work after which an idle rank is replaced; none: no limit."""
    wait_for_ranks: float = setting(RunLimits.wait_for_ranks, at_least=0)
    """Seconds that a run waits for ranks whose machine has left, before it is skipped; above 600, also how long a sweep
    waits for a full cluster."""
    give_up_after: int = setting(RunLimits.give_up_after, at_least=1)
    """Number of equal failures of a trial in a row after which its further repeats are skipped."""
    recycle_above_mib: float | None = setting(RunLimits.recycle_above_mib, above=0, or_none=True)
    """Resident set above which a rank's process is replaced between two runs; without it, never."""
    checkpoints: bool = False
    """Save each run after each epoch, and resume it there if it is cut short."""
    save_weights: bool = False
    """Keep the final weights of each run: weights.pt in its folder below runs/, with weights.json, which says what
    opens them in plain PyTorch."""
    trace: int = setting(0, at_least=0)
    """Number of first repeats of each trial whose ranks are traced by torch.profiler for a few further steps, which no
    time contains: trace-rank0.json.gz, ... in the run's folder below runs/, linked from the report."""
    tensorboard: Literal["live", "off"] = "live"
    """live: write files for TensorBoard while runs go on, into <out>/tensorboard."""
    dashboard: bool = False
    """Show Ray's dashboard, on the loopback interface."""
    verbose: bool = False
    """Show what Ray and the ranks print."""

    def __post_init__(self) -> None:
        if self.out is not None:
            check_location(self.out, "--out")
            check_utf8(os.fspath(self.out), "--out")
        if isinstance(self.out, os.PathLike):
            object.__setattr__(self, "out", os.fspath(self.out))
        elif self.out is not None:
            object.__setattr__(self, "out", without_file_scheme(self.out))
        set_checked(self, field_specs(Options).values())
        if self.repeats is None and self.mode == "search":
            object.__setattr__(self, "repeats", 1)
        self._check_until()
        self._check_search()
        if self.address is not None and not self.address.strip():
            raise ConfigError("--address is empty; give HOST:PORT of a cluster, auto or local, or leave it out.")
        for name in ("checkpoints", "save_weights", "trace"):
            if self.is_remote and getattr(self, name):
                raise ConfigError(
                    f"--{name.replace('_', '-')} needs a folder that the ranks can write to, and --out {self.out} is "
                    "none; leave it out, or give --out a path that all machines share."
                )

    def _check_until(self) -> None:
        defaults = field_defaults(Options)
        for name in UNTIL if self.repeats is not None else ():
            if (value := getattr(self, name)) != defaults[name]:
                why = "mode=search" if self.mode == "search" else f"repeats={self.repeats}"
                raise ConfigError(f"{name}={value} only applies to repeats=auto, and not to {why}; leave it out.")

        if self.race and self.aim is None:
            raise ConfigError("--race leaves out what is beaten, and nothing says for what; add --aim throughput, say.")
        if self.aim is not None and not self.race:
            raise ConfigError(f"--aim {self.aim} only applies to a race; add --race.")

    def _check_search(self) -> None:
        defaults = field_defaults(Options)
        for name in SEARCH_ONLY:
            value = getattr(self, name)
            if self.mode == "bench" and value != defaults[name]:
                raise ConfigError(f"{name}={value} only applies to mode=search; add --mode search.")
        if self.mode == "search" and self.searcher not in GRIDS and self.repeats != 1:
            raise ConfigError(f"repeats={self.repeats} does not go with searcher={self.searcher}; use repeats 1.")
        if self.mode == "search" and self.isolation != "group":
            raise ConfigError(f"isolation={self.isolation} does not go with mode=search; leave it out.")

    @property
    def blocks(self) -> int:
        """Runs of each trial, at most."""
        return self.max_repeats if self.repeats is None else self.repeats

    @property
    def until(self) -> Until | None:
        """Until when trials are repeated; None where their number was given."""
        return None if self.repeats is not None else Until(**{name: getattr(self, name) for name in UNTIL})

    @property
    def uses_searcher(self) -> bool:
        """Whether a searcher of Ray Tune proposes the runs."""
        return self.mode == "search" and self.searcher not in GRIDS

    @property
    def run_limits(self) -> RunLimits:
        """Timeouts and retries of the runs, and the limit of a rank's memory."""
        return RunLimits(**{spec.name: getattr(self, spec.name) for spec in fields(RunLimits)})

    @property
    def is_remote(self) -> bool:
        """Whether the results go to a URI."""
        return self.out is not None and is_uri(self.out)
