"""`Options`: how a sweep is run, apart from what it varies."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from msgspec import Meta

from dmls_ray.config.fields import (
    Count,
    NonNegativeNumber,
    PositiveNumber,
    Share,
    WholeNumber,
    field_specs,
    set_checked,
    setting,
)
from dmls_ray.config.value_texts import seconds_of, share_of
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import check_utf8
from dmls_ray.util.uri import check_location, is_uri


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Limits of runs. They are options of a sweep: `Options` inherits them."""

    max_retries: WholeNumber = setting(1, group="limits")
    """How often a run that was killed or timed out is started again."""
    run_timeout: PositiveNumber | None = setting(None, group="limits", reads=seconds_of)
    """Seconds that an attempt at a run may take; without it, no limit."""
    stall_timeout: PositiveNumber | None = setting(600.0, group="limits", reads=seconds_of)
    """Seconds without progress (an optimizer step, a test batch or an event) after which a run is ended. An idle rank
    that asks for no work for so long is replaced. none: no limit."""
    wait_for_ranks: NonNegativeNumber = setting(60.0, group="limits", reads=seconds_of)
    """Seconds that a run waits for ranks whose machine has left, before it is skipped; above 600, also how long a sweep
    waits for a full cluster."""
    give_up_after: Count = setting(2, group="limits")
    """Number of equal failures of a trial in a row after which its further repeats are skipped."""


@dataclass(frozen=True, kw_only=True)
class Until:
    """Until when trials are repeated. These are options of a sweep: `Options` inherits them."""

    within: Annotated[float, Meta(gt=0, lt=1)] = setting(0.05, group="stopping", reads=share_of)
    """Half-width of an interval at which a comparison needs no further repeat: 5% of a ratio, or 0.05 (5 points) of an
    accuracy."""
    equivalent: Share = setting(0.02, group="stopping", reads=share_of)
    """Largest difference of two trials that counts as equal. If the interval shows a smaller one, they need no further
    repeat."""
    max_repeats: Annotated[int, Meta(ge=3)] = setting(30, group="stopping")
    """Most repeats of a trial."""
    budget: NonNegativeNumber | None = setting(60.0, group="stopping", reads=seconds_of)
    """Time for repeats beyond the third, of tune for the whole search: 90s, 20m or 2h. A block of repeats starts only
    if it would end in this time. none: no limit."""
    race: bool = setting(False, group="stopping")
    """Leave a trial out of further repeats once it is worse for the --aim."""
    aim: Literal["throughput", "accuracy", "time-to-accuracy", "memory"] | None = setting(None, group="stopping")
    """What trials race for: most throughput, highest accuracy, shortest time to --target-accuracy, least memory."""


GRIDS = ("grid", "random")
"""Searchers of this package, which know all of their runs beforehand."""


@dataclass(frozen=True, kw_only=True)
class Options(RunLimits, Until):
    """How a sweep is run, apart from what it varies. Each field is a flag, but those of the group `script`.

    Raises:
        ConfigError: a value breaks a rule of its field.
    """

    name: str = setting("sweep", group="script")
    """Name of the results folder: results/<name>."""
    axis: str | None = setting(None, group="script")
    """Field that the sweep asks about; without it, the first that varies."""
    question: str = setting("", group="script")
    """Question that the sweep asks, in words; the report begins with it."""
    layout: str | None = setting(None, group="script")
    """Name of a report's table that is printed at the end instead of the sweep's, for example machines."""
    search: bool = setting(False, group="runs")
    """Search for the best configuration: runs share the ranks, and poor ones are stopped early. Without it, one run
    at a time, so that times can be compared."""
    preload: str | None = setting(None, group="runs")
    """Installed libraries, as transformers,datasets, that are imported once for all runs of a script or a function,
    instead of in the set-up of each run."""
    searcher: str = setting("grid", group="search")
    """Of a search: grid (every combination), random, or one of Ray Tune's: optuna, hyperopt, bayesopt, ..."""
    trials: Count = setting(16, group="search")
    """Of a search: how many trials a searcher other than grid proposes."""
    scheduler: Literal["asha", "median", "none"] = setting("asha", group="search")
    """Of a search: rule by which poor runs are stopped after an epoch: Ray Tune's ASHA or its median rule."""
    metric: str | None = setting(None, group="repeats")
    """Metric by which alone trials are compared, as a number that a script prints or logs. Of a search the one to
    optimize, any that the workload reports for an epoch; test_accuracy without it."""
    goal: Literal["auto", "max", "min"] = setting("auto", group="repeats")
    """Whether the metric is to be large or small; auto: by its entry in the registry; one without an entry is to be
    small if it is a loss, and large if it is an accuracy."""
    repeats: Count | Literal["auto"] = setting("auto", group="repeats")
    """Runs of each trial, each with its own seed. auto: 3, and then more until the comparisons are decided; of a
    search 1."""
    times: Literal["on", "off"] = setting("on", group="repeats")
    """off: compare no times. Runs then share all ranks of all machines, equal or not, and no number of time is kept."""
    order_seed: WholeNumber = setting(0, group="repeats")
    """Seed of the order of runs within a block."""
    whole_blocks: bool = setting(False, group="repeats")
    """Run a whole block again if some of its runs are missing, or if they come from several sessions: speeds of
    different sessions are not compared."""
    out: str | None = setting(None, group="results")
    """Results folder, or its URI (s3://BUCKET/NAME, gs://BUCKET/NAME); without it, results/<sweep>."""
    fresh: bool = setting(False, group="results")
    """Start over in a new folder; nothing is deleted."""
    stale: bool = setting(False, group="results")
    """Include runs with other versions of your code or data in the results."""
    address: str | None = setting(None, group="cluster")
    """Ray cluster to join; without it RAY_ADDRESS, a cluster that runs on this machine, or a new one."""
    lanes: Count | Literal["auto", "all"] = setting("auto", group="cluster")
    """How many lanes measure at the same time, each a whole block on ranks that can serve the widest run. auto: as many
    as a cluster that was joined has equal machines for; all: lanes of every kind of machine. A number also divides the
    cores and GPUs of machines, if a check shows that their lanes do not slow each other down."""
    accept_slower: bool = setting(False, group="cluster")
    """Use several lanes of one machine also where they slow each other down; tables say so."""
    leave_out_slower: Share = setting(0.0, group="cluster", reads=share_of)
    """Leave out machines of a cluster that dmls-ray doctor --lanes all has found to be slower than the others by more
    than this share, beyond chance; 0: none."""
    oversubscribe: bool = setting(False, group="cluster")
    """Allow more ranks than CPU cores."""
    checkpoints: bool = setting(False, group="artifacts")
    """Save each run after each epoch, and resume it there if it is cut short."""
    save_weights: bool = setting(False, group="artifacts")
    """Keep the final weights of each run: weights.pt in its folder below runs/, with weights.json, which says what
    opens them in plain PyTorch."""
    trace: WholeNumber = setting(0, group="artifacts")
    """How many repeats of each trial, from the first on, are traced by torch.profiler for a few steps, which no rate
    includes: trace-rank0.json.gz, ... in the run's folder below runs/, linked from the report."""
    tensorboard: Literal["auto", "live", "off"] = setting("auto", group="display")
    """live: write files for TensorBoard while runs go on, into <out>/tensorboard; auto: if it is installed."""
    dashboard: bool = setting(False, group="display")
    """Show Ray's dashboard, on the loopback interface."""
    verbose: bool = setting(False, group="display")
    """Show what Ray and the ranks print."""

    def __post_init__(self) -> None:
        if self.out is not None:
            check_location(self.out, "--out")
            if str(self.out).lower().startswith("file://"):
                raise ConfigError(f"--out {self.out} is a folder of this machine; give its path.")
        set_checked(self, field_specs(Options).values())
        check_utf8(f"{self.name} {self.out or ''}")
        if self.repeats == "auto" and self.search:
            object.__setattr__(self, "repeats", 1)
        self._check_repeats()
        if self.address is not None and not self.address.strip():
            raise ConfigError("--address is empty; give HOST:PORT of a cluster, auto or local, or leave it out.")
        if self.leave_out_slower and self.address in (None, "local"):
            raise ConfigError("--leave-out-slower is for machines of a cluster; add --address auto, or leave it out.")
        for name in ("checkpoints", "save_weights", "trace"):
            if self.is_remote and getattr(self, name):
                raise ConfigError(
                    f"--{name.replace('_', '-')} needs a folder that the ranks can write to, and --out {self.out} is "
                    "not one; leave it out, or give --out a path that all machines share."
                )

    def _check_repeats(self) -> None:
        given = self._given("stopping")
        if self.repeats != "auto" and given:
            name, value = given.popitem()
            why = "a search" if self.search else f"repeats={self.repeats}"
            raise ConfigError(f"{name}={value} only applies to repeats=auto, and not to {why}; leave it out.")
        if self.race and self.aim is None:
            raise ConfigError("--race leaves out trials that are worse for an aim; add --aim throughput, for example.")
        if self.times == "off" and self.aim in ("throughput", "time-to-accuracy"):
            raise ConfigError(f"--aim {self.aim} compares times, which --times off leaves out; leave one of them out.")
        if self.lanes != "auto" and not self.is_timed:
            why = "--search" if self.search else "--times off"
            raise ConfigError(f"--lanes {self.lanes} is for timed runs, and those of {why} share ranks; leave it out.")
        if self.accept_slower and not isinstance(self.lanes, int):
            raise ConfigError("--accept-slower is for several lanes of one machine; add --lanes 2, for example.")
        if self.times == "off" and self.search:
            raise ConfigError("--times off has no effect on a search, whose runs share the ranks; leave it out.")
        if self.aim is not None and not self.race:
            raise ConfigError(f"--aim {self.aim} only applies to a race; add --race.")
        given = self._given("search")
        if given and not self.search:
            name, value = given.popitem()
            raise ConfigError(f"{name}={value} only applies to a search; add --search.")
        if self.goal != "auto" and self.metric is None and not self.search:
            raise ConfigError(f"--goal {self.goal} says what is better of a metric; add --metric, or leave it out.")
        if self.uses_searcher and self.repeats != 1:
            raise ConfigError(f"repeats={self.repeats} does not go with searcher={self.searcher}; use repeats 1.")

    def _given(self, group: str) -> dict[str, Any]:
        """The options of a group that are not at their defaults."""
        specs = [spec for spec in field_specs(Options).values() if spec.setting.group == group]
        values = {spec.name: getattr(self, spec.name) for spec in specs}
        return {spec.name: values[spec.name] for spec in specs if values[spec.name] != spec.default}

    @property
    def searched_metric(self) -> str:
        """What a search optimizes."""
        return self.metric or "test_accuracy"

    @property
    def mode(self) -> str:
        """What records say of it: `search`, `shared`, or `bench`, where runs had machines for themselves."""
        if self.search:
            return "search"
        return "shared" if self.times == "off" else "bench"

    @property
    def is_timed(self) -> bool:
        """Whether runs have their ranks' machines for themselves, so that their times can be compared."""
        return self.mode == "bench"

    @property
    def blocks(self) -> int:
        """Runs of each trial, at most."""
        return self.repeats if isinstance(self.repeats, int) else self.max_repeats

    @property
    def until(self) -> Until | None:
        """Until when trials are repeated; None where their number was given."""
        if self.repeats != "auto":
            return None
        return Until(**{item.name: getattr(self, item.name) for item in fields(Until)})

    @property
    def uses_searcher(self) -> bool:
        """Whether a searcher of Ray Tune proposes the runs."""
        return self.search and self.searcher not in GRIDS

    @property
    def is_remote(self) -> bool:
        """Whether the results go to a URI."""
        return self.out is not None and is_uri(self.out)


SEARCH_ONLY = tuple(spec.name for spec in field_specs(Options).values() if spec.setting.group == "search")
"""Options that apply to a search only."""

FLAGS = {name: spec for name, spec in field_specs(Options).items() if spec.setting.group != "script"}
"""The options that are flags. A script sets the others."""

RESERVED = frozenset(
    {
        *FLAGS, "workload", "train", "set", "env", "metric_regex", "range", "log_range", "restarts", "dry_run", "help",
        "help_all", "change_training", "flag", "format", "share",
    }
)  # fmt: skip
"""Names of flags that are no fields: no field may have one of them."""
