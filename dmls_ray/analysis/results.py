"""Records as pandas tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dmls_ray.config.options import Until
from dmls_ray.records import model as record_model
from dmls_ray.records.metrics import BY_NAME, Metric
from dmls_ray.records.model import RankRecord, RunRecord
from dmls_ray.records.outcome import outcome_counts
from dmls_ray.records.stale import SplitRecords, describe_stale
from dmls_ray.storage.folder import read_folder, read_sweep
from dmls_ray.storage.location import local_copy
from dmls_ray.storage.mirror import Mirror
from dmls_ray.util.errors import StoreError
from dmls_ray.util.interpreter import gc_disabled
from dmls_ray.util.uri import check_location
from dmls_ray.workloads.registry import workload_of

if TYPE_CHECKING:
    import pandas as pd

NESTED = (
    "config", "code", "data", "machine", "versions", "git", "epochs", "ranks", "earlier_attempts", "metrics", "facts",
    "proposed", "picture", "series", "step_losses", "step_passes",
)  # fmt: skip
"""Fields of a record that are no values of a table."""


class Results:
    """A sweep's runs as pandas DataFrames.

    Attributes:
        folder: the results folder; for results at a URI, the local copy of the folder.
        records: one `RunRecord` a run.
        mirror: the owner of the local copy; None for results in a local folder.
        left_out: a line about stale runs that are left out; empty if there are none.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        records: Sequence[RunRecord],
        *,
        mirror: Mirror | None = None,
        left_out: str = "",
    ) -> None:
        self.folder = Path(folder)
        self.mirror = mirror
        self.left_out = left_out
        self.records = sorted(records, key=attrgetter("repeat", "order"))

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        counts = outcome_counts(record.ending for record in self.records)
        return f"Results({self.where!r}, {len(self.records)} runs: {counts or 'none'})"

    @property
    def where(self) -> str:
        """The path of the results folder, or its URI."""
        if self.mirror is None or self.mirror.is_kept:
            return str(self.folder)
        return self.mirror.uri

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """What each call on the folder asked, the last one at the end.

        Raises:
            StoreError: sweep.json cannot be read.
        """
        return read_sweep(self.folder).get("sessions", [])

    @property
    def days(self) -> str:
        """The first and the last day on which a run began: `2026-01-02 to 2026-01-05`; a single day once."""
        days = {record.started_at[:10] for record in self.records} - {""}
        if len(days) > 1:
            return f"{min(days)} to {max(days)}"
        return "".join(days)

    def of(self, records: Sequence[RunRecord]) -> Results:
        """Results with some of the records of the same folder."""
        return Results(self.folder, records, mirror=self.mirror, left_out=self.left_out)

    @cached_property
    def until(self) -> Until | None:
        """Until when trials were repeated; None where their number was given. A call with a given number does not undo
        that an earlier one looked at the sweep.

        Raises:
            StoreError: sweep.json cannot be read.
        """
        for session in reversed(self.sessions):
            if session.get("until"):
                return msgspec.convert(session["until"], Until)
        return None

    @cached_property
    def judged_by(self) -> tuple[str, bool] | None:
        """The metric by which alone the last call compares trials, and whether less of it is better; None for the usual
        measures.

        Raises:
            StoreError: sweep.json cannot be read.
        """
        last = [{}, *self.sessions][-1]
        if last.get("mode") == "search" or last.get("metric") is None:
            return None
        return last["metric"], bool(last.get("minimizes"))

    @cached_property
    @gc_disabled()
    def runs(self) -> pd.DataFrame:
        """One row a run: the fields of its configuration, what is recorded of it but the picture, its metrics, and
        facts of its machine. Where two columns have one name, the later one gets a prefix.
        """
        import pandas as pd

        records = self.records
        # By columns: a dict a run would take gigabytes for a hundred thousand.
        fields = [name for name in record_model.RUN_FIELDS if name not in NESTED]
        read = _attributes(records, fields)
        columns = {name: read.pop(name) for name in record_model.KEYS}
        factors = _shared_columns(records, factors_of, "config")
        _add(columns, factors, record_model.OF_A_FIELD, taken=record_model.RESERVED)
        columns["run_seed"] = read.pop("seed")
        read["outcome"] = pd.Series([record.outcome.value for record in records])
        # What a field became (auto, a warm-up longer than half the run) has a column next to what was asked for.
        _add(columns, read, record_model.OF_A_RECORD)
        present = field_names(chain.from_iterable((record.metrics, record.facts) for record in records))
        entries = _columns((record.metrics | record.facts for record in records), present)
        _add(columns, {name: entries.pop(name, None) for name in self._registered}, record_model.OF_A_RECORD)
        _add(columns, entries, record_model.OF_A_METRIC)
        _add(columns, _shared_columns(records, _surroundings, "machine", "versions", "git"), "run_")
        return pd.DataFrame(columns)

    @cached_property
    def _registered(self) -> dict[str, Metric]:
        """The metrics of the workloads of the runs, which have a column whether or not a run reports them."""
        metrics = dict(BY_NAME)
        for config in distinct(record.config for record in self.records):
            metrics |= {metric.name: metric for metric in workload_of(config).metrics}
        return metrics

    def _metrics_of(self, scope: str) -> list[str]:
        return [name for name, metric in self._registered.items() if metric.scope == scope and not metric.of]

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """One row a rank of a run."""
        fields = [name for name in RankRecord.__struct_fields__ if name not in ("metrics", "epochs")]
        rows = []
        for record in self.records:
            for rank in record.ranks:
                values = {name: getattr(rank, name) for name in fields}
                rows.append((record, values | rank.metrics))
        return _frame_of_parts(rows, [*fields, *self._metrics_of("rank")])

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row an epoch of a run, over all its ranks."""
        rows = []
        for record in self.records:
            rows += [(record, epoch.values) for epoch in record.epochs]
        return _frame_of_parts(rows, ["epoch", *self._metrics_of("epoch")])

    @cached_property
    def rank_epochs(self) -> pd.DataFrame:
        """One row an epoch of a rank, over the samples of that rank."""
        rows = []
        for record in self.records:
            for rank in record.ranks:
                rows += [(record, {"rank": rank.rank, **epoch.values}) for epoch in rank.epochs]
        return _frame_of_parts(rows, ["rank", "epoch"])


@gc_disabled()
def load(folder: str | os.PathLike[str], *, stale: bool = False) -> Results:
    """The results in a folder, or at a URI: s3://bucket/batch_size, say.

    Args:
        folder: the folder or URI.
        stale: include the runs that were made with other code or data of the user. If there are any, the field `code`
            of each configuration is `current`, or a digest of the code and data of its stale runs.

    Raises:
        ConfigError: the URI has credentials in it.
        StoreError: the folder holds no sweep, or cannot be reached, or a line in it is no record.
    """
    check_location(folder)
    local, mirror = local_copy(folder)
    split = read_folder(local, mirror.uri if mirror else None)
    return results_of(local, split, mirror=mirror, stale=stale)


def results_of(
    folder: str | os.PathLike[str], split: SplitRecords, *, mirror: Mirror | None = None, stale: bool = False
) -> Results:
    """The results of a folder; with `stale`, those of other code and data, too.

    Raises:
        StoreError: a configuration is not one of its workload.
    """
    records, left_out = split.current, describe_stale(split.stale, split.newest)
    if stale and split.stale:
        records, left_out = split.distinguished(), ""
    for record in {id(record.config): record for record in records}.values():
        try:
            workload_of(record.config).check_recorded(record.config)
        except ValueError as error:
            raise StoreError(
                f"the configuration of run {record.run_id} is not valid ({error}); remove its line from runs.jsonl."
            ) from error
    return Results(folder, records, mirror=mirror, left_out=left_out)


def factors_of(record: RunRecord) -> dict[str, Any]:
    """Every field of the run's configuration, and what follows from them: global_batch."""
    return workload_of(record.config).factors(record.config)


def factor_cells(factors: Mapping[str, Any], *, other_headers: Collection[str]) -> dict[str, str]:
    """Fields of a configuration as the cells of a trial.

    Args:
        factors: name -> value.
        other_headers: headers of the row's other cells; a field with the name of one gets the prefix `config_`.
    """
    heads = record_model.distinct_names(factors, other_headers, record_model.OF_A_FIELD)
    return {head: "" if factors[name] is None else str(factors[name]) for name, head in heads.items()}


def distinct(objects: Iterable[Mapping[str, Any]]) -> Collection[Mapping[str, Any]]:
    """Each object once: many runs share a configuration, or the description of their machine."""
    return {id(item): item for item in objects}.values()


def field_names(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names that any of the mappings has, in their order."""
    return list(dict.fromkeys(chain.from_iterable(items)))


def _add(columns: dict[str, Any], further: Mapping[str, Any], prefix: str, *, taken: Collection[str] = ()) -> None:
    """Add further columns, with a prefix where the name is that of another column, or is taken."""
    heads = record_model.distinct_names(further, [*columns, *taken], prefix)
    columns |= {heads[name]: values for name, values in further.items()}


def _frame_of_parts(rows: Sequence[tuple[RunRecord, Mapping[str, Any]]], first: Sequence[str]) -> pd.DataFrame:
    """The parts of runs, by name, after what names the run and the fields that vary; the names in `first` have columns
    in any case.
    """
    import pandas as pd

    records = [record for record, _ in rows]
    columns = _attributes(records, record_model.KEYS)
    factors = _shared_columns(records, factors_of, "config")
    varied = {name: column for name, column in factors.items() if column.map(repr).nunique() > 1}
    _add(columns, varied, record_model.OF_A_FIELD, taken=[*record_model.RESERVED, *first])
    values = [values for _, values in rows]
    _add(columns, dict.fromkeys(first) | _columns(values, field_names(values)), record_model.OF_A_METRIC)
    return pd.DataFrame(columns)


def _attributes(records: Sequence[RunRecord], names: Sequence[str]) -> dict[str, Any]:
    values_of = attrgetter(*names)
    return _transposed(names, [values_of(record) for record in records])


def _columns(items: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """The columns of these mappings. Row by row, since the values of a row lie near each other in memory."""
    return _transposed(names, [tuple([item.get(name) for name in names]) for item in items])


def _transposed(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    import pandas as pd

    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return {name: pd.Series(values) for name, values in zip(names, columns, strict=True)}


def _shared_columns(
    records: Sequence[RunRecord], facts_of: Callable[[RunRecord], dict[str, Any]], *shared: str
) -> dict[str, Any]:
    """Columns of facts of runs, which are computed once for all records whose fields `shared` are the same objects."""
    facts: list[dict[str, Any]] = []
    places: dict[tuple[int, ...], int] = {}
    rows = []
    for record in records:
        key = tuple([id(getattr(record, name)) for name in shared])
        if key not in places:
            places[key] = len(facts)
            facts.append(facts_of(record))
        rows.append(places[key])
    columns = _columns(facts, field_names(facts))
    return {name: column.take(rows).reset_index(drop=True) for name, column in columns.items()}


def _surroundings(record: RunRecord) -> dict[str, Any]:
    """Facts of the machine, the versions and the commit of a run."""
    machine, versions, git = record.machine, record.versions, record.git
    return {
        "machine_host": machine.get("host", ""),
        "machine_cpu": machine.get("cpu", ""),
        "machine_cores": machine.get("cores"),
        "machine_gpus": ", ".join(machine.get("gpus", [])),
        "version_torch": versions.get("torch", ""),
        "version_ray": versions.get("ray", ""),
        "git_commit": git.get("commit", ""),
        "git_dirty": git.get("dirty"),
    }
