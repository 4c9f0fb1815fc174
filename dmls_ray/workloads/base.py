"""`Workload`: what a rank runs, with its configuration, its metrics and what they mean.

A package outside dmls_ray adds a workload by subclassing `Workload` and naming the subclass in the entry point group
`dmls_ray.workloads`. Flags, hashes, resuming, tables, figures, the report and TensorBoard follow from the subclass.
Importing the module of a workload must load neither PyTorch nor Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dmls_ray.config.fields import FieldSpec, field_specs
from dmls_ray.config.hashing import digest_of_changes
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.config.schema import Schema
from dmls_ray.records.metric import Metric
from dmls_ray.records.validation import check_field_values
from dmls_ray.util.errors import ConfigError

RESERVED_FIELDS = ("train", "workload")
"""Keys that name the workload of a recorded configuration; no field may have one of these names."""


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
    throughput: ClassVar[str | None] = None
    """Name of the metric of kind `rate` from which speed-up and efficiency follow; None: runs per second."""
    epoch_metrics: ClassVar[Sequence[str] | None] = None
    """Metrics that `--metric` of a search may name; None: any that a run reports."""
    durations_compare: ClassVar[bool] = False
    """Whether all runs do the same work, so that their durations compare where no rate is known."""
    presentation: ClassVar[str] = "dmls_ray.analysis.presentation:Presentation"
    """`module:Class` of the columns, notes, figures and summary, loaded when results are read."""

    @classmethod
    def claims(cls, config: Mapping[str, Any]) -> bool:
        """Whether a recorded configuration belongs to this workload."""
        return config.get("workload") == cls.name

    def specs(self) -> Mapping[str, FieldSpec]:
        """The fields of the configuration class, without importing user code."""
        return field_specs(self.config)

    def schema(self) -> Schema:
        """The fields that a sweep can vary.

        Raises:
            ConfigError: a field of the configuration has a reserved name.
        """
        specs = self.specs()
        for name in RESERVED_FIELDS:
            if name in specs:
                raise ConfigError(f"workload {self.name}: its field {name} has a reserved name; give it another name.")
        fixed = {"workload": self.name}
        defaults = {name: spec.default for name, spec in specs.items()}
        return Schema(
            title=f"the configuration of {self.name}",
            specs=specs,
            make=self.config,
            hash_of=lambda values: digest_of_changes({**values, **fixed}, defaults),
            fixed=fixed,
        )

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
        """The reason why no cluster can run this configuration; empty if there is none."""
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

    def writes_files(self, config: Any) -> bool:
        """Whether each run needs a folder for files besides its record."""
        return False

    def estimate_s(self, config: Any) -> float | None:
        """Estimated seconds of a run that was never measured; None if unknown."""
        return None
