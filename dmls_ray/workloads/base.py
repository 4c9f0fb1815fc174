"""`Workload`: what a rank runs, with its configuration, its metrics and what they mean.

A package outside dmls_ray adds a workload by subclassing `Workload` and naming the subclass in the entry point group
`dmls_ray.workloads`. Flags, hashes, resuming, tables, figures, the report and TensorBoard follow from the subclass.
Importing the module of a workload must load neither PyTorch nor Ray.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dmls_ray.config.fields import FieldSpec, field_specs
from dmls_ray.config.identity import digest_of_changes
from dmls_ray.config.runtime import RuntimeConfig, Schema
from dmls_ray.config.value_texts import as_flag_value
from dmls_ray.records.codec import check_field_values
from dmls_ray.records.metrics import Metric
from dmls_ray.training.rank import RankInfo
from dmls_ray.util.digests import digest_of_files
from dmls_ray.util.errors import DataError


class Workload:
    """What a rank runs. A subclass sets `name`, `config`, `entrypoint` and `metrics`; the rest has defaults.

    Methods that take configurations get objects of the class `config`.
    """

    name: str
    """Name of the workload in the registry, in records and after `--workload`."""
    config: ClassVar[type[RuntimeConfig]]
    """Frozen dataclass of the configuration. Every field can be an axis."""
    entrypoint: ClassVar[str]
    """`module:function`, called on every rank as `function(config, rank, emit)`; returns a dict of plain values."""
    metrics: ClassVar[Sequence[Metric]] = ()
    """What a run reports, in the order of the table's columns."""
    throughput: ClassVar[Sequence[str]] = ("images_per_s",)
    """Names of metrics of kind `rate`. From the first that a run reports, speed-up and efficiency follow; of runs
    without any, from runs per second."""
    probe: ClassVar[Mapping[str, Any]] = {}
    """Fields with which a run is so short that it just tells whether it fits into memory; empty: as any run."""
    epoch_metrics: ClassVar[Sequence[str] | None] = None
    """Metrics that `--metric` of a search may name; None: any that a run reports."""
    durations_compare: ClassVar[bool] = False
    """Whether all runs do the same work, so that their durations compare where no rate is known."""
    fixed: ClassVar[Mapping[str, Any] | None] = None
    """Recorded values that are no fields; None: the name of the workload."""
    saves_weights: ClassVar[bool] = False
    """Whether its runs save their weights where `--save-weights` asks for them."""
    keeps_output: ClassVar[bool] = False
    """Whether its ranks write what they print into the folder of the run."""
    presentation: ClassVar[str] = "dmls_ray.analysis.table.presentation:Presentation"
    """`module:Class` of the columns, notes and figures, loaded when results are read."""
    questions: ClassVar[str] = "dmls_ray.analysis.findings.sweep_trials:Questions"
    """`module:Class` of what results are asked, likewise."""

    @property
    def folder_name(self) -> str:
        """The name of the results folder where none is given: `module-function` for a function."""
        return re.sub(r"[^A-Za-z0-9_]+", "-", self.name.partition("#")[0]).strip("-") or "function"

    def specs(self) -> Mapping[str, FieldSpec]:
        """The fields of the configuration class, without importing user code."""
        return field_specs(self.config)

    def schema(self) -> Schema:
        """The fields that a sweep can vary."""
        specs = self.specs()
        fixed = {"workload": self.name} if self.fixed is None else self.fixed
        defaults = {name: spec.default for name, spec in specs.items()}
        return Schema(
            title=f"the configuration of {self.name}",
            specs=specs,
            build=self.config,
            hash_of=lambda values: digest_of_changes({**values, **fixed}, defaults),
            fixed=fixed,
        )

    def name_objects(self, axes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The axes of a sweep that is called from Python, with plain values in place of objects that fields take."""
        return axes

    def describe_sweep(self, axes: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What is run and varied, as a sweep file has it; None where no file can say it, as of objects of a program."""
        values: list[Any] = []
        for given in axes.values():
            values += given if isinstance(given, list | tuple) else [given]
        # An object that was sent along is a text with a class of its own.
        if any(isinstance(value, str) and type(value) is not str for value in values):
            return None
        return {"workload": self.name, "axes": axes}

    def split_off(self, names: Sequence[str]) -> tuple[Workload, Mapping[str, Any]]:
        """The workload without the values that it fixes of these fields, and those values."""
        return self, {}

    def libraries(self, config: Any) -> str:
        """What all runs import, whatever code they run, so that it is imported once; as `import_libraries` takes it."""
        return ""

    def with_variables(self, names: Sequence[str]) -> Workload:
        """The workload with variables of the environment, not set by default, as further fields, if runs take any."""
        return self

    def command_of(self, values: Mapping[str, Any]) -> str:
        """The command that trains with these values of fields, for a person to paste."""
        described = self.describe_sweep(values) or {}
        words = ["dmls-ray", "sweep", "grid"]
        for key in ("train", "workload"):
            if key in described:
                words += [f"--{key}", described[key]]
        for name, value in described.get("axes", {}).items():
            words += [f"--{name.replace('_', '-')}", as_flag_value(value)]
        for name, value in described.get("set", {}).items():
            words += ["--set", name, as_flag_value(value)]
        return shlex.join(words)

    def about_flags(self) -> str:
        """What --help says of flags that are not known; empty where all are."""
        return ""

    def about_unknown_flag(self, flag: str, values: Sequence[str], meant: str) -> str:
        """The line about a flag that there is not; empty for that of every sweep.

        Args:
            flag: as it was typed.
            values: the words that follow it.
            meant: what may have been meant, as a question; empty without a guess.
        """
        return ""

    def factors(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A recorded configuration with its defaults and the fields that follow from others."""
        return dict(config)

    def check_recorded(self, config: Mapping[str, Any]) -> None:
        """Refuse a recorded configuration whose values have other types than their fields: files may come from anybody.

        Raises:
            ValueError: with the field.
        """
        check_field_values(field_specs(self.config), config)

    def infeasible_reason(self, config: Any) -> str:
        """The reason why no cluster can run this configuration, and the way out; empty if there is none. In a sweep,
        such runs are skipped.
        """
        return ""

    def check(self, configs: Sequence[Any]) -> None:
        """Refuse names that do not exist, before anything starts.

        Raises:
            InputError: one line that names the field, its value and the way out.
        """

    def prepare(self, configs: Sequence[Any], notify: Callable[[str], None]) -> None:
        """Prepare the data of these configurations once on this machine, before ranks start.

        Raises:
            InputError: as `check`.
        """

    def cached_data(self, configs: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
        """Arguments of `load_cached` for each data set that a machine prepares before its ranks start."""
        return ()

    def load_cached(self, *arguments: Any) -> None:
        """Prepare one data set of `cached_data` on this machine."""

    def modules(self, config: Any) -> Sequence[str]:
        """Names of the user's modules that a run of this configuration imports; what these import need not be named.

        Other sources of these modules make other trials.
        """
        module = self.entrypoint.partition(":")[0]
        return () if module.startswith("dmls_ray.") else (module,)

    def functions(self, config: Any) -> Mapping[str, str]:
        """Name -> digest of the functions that a run executes and that no module has, as those of a notebook."""
        return {}

    def data_sets(self, config: Any) -> Mapping[str, tuple[Any, ...]]:
        """Name of each data set that a run reads -> arguments of `fingerprint`; all that its values select is in the
        name. Other data of this name make other trials.

        By default, the files and folders that fields name whose own names begin with `data`.
        """
        named = {name: value for name, value in config.canonical().items() if name.startswith("data")}
        return files_named(named)

    def fingerprint(self, *arguments: Any) -> str:
        """Fingerprint of one data set of `data_sets` as it is now; called once for each sweep.

        Raises:
            DataError: the data cannot be read.
        """
        (path,) = arguments
        try:
            return digest_of_files(path)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}.") from error


def files_named(values: Mapping[str, Any]) -> dict[str, tuple[str]]:
    """`field=value` -> path, of the values that name a file or a folder on this machine."""
    texts = {name: value for name, value in values.items() if isinstance(value, str) and value}
    paths = {f"{name}={value}": os.path.expanduser(value) for name, value in texts.items()}
    return {name: (path,) for name, path in paths.items() if os.path.exists(path)}


_found: dict[tuple[Any, ...], str] = {}
"""Fingerprints at the first run of this process that reads the data: it keeps what it has read for later runs."""


def check_data(workload: Workload, config: Any, rank: RankInfo) -> None:
    """Refuse data that differ from those that the driver has recorded for the run, in no time of the run.

    Raises:
        DataError: with the data set and the machine.
    """
    from dmls_ray.training.process import wait_for_others

    with rank.clock.untimed():
        expected = rank.identity.data
        data_sets = workload.data_sets(config) if expected else {}
        for name, arguments in data_sets.items():
            if name not in expected:
                continue
            if (key := (workload.name, *arguments)) not in _found:
                _found[key] = workload.fingerprint(*arguments)
            if _found[key] != expected[name]:
                raise DataError(
                    f"{name} on machine {rank.machine} is not what this sweep began with; copy it to each machine, or "
                    "share their folder. If they were changed since, run the same command again."
                )
        if expected:
            wait_for_others(rank)
