"""Data model of a run: one `RunRecord` with its epochs and its ranks, as plain values; and how long runs took.

The numbers of a run, an epoch and a rank are in its `metrics`, by the name of their `Metric`, which says what they
mean. Seconds end in `_s`, milliseconds in `_ms`, memory in `_mib`. Accuracies are fractions. Losses are means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from dmls_ray.records.codec import SHARED_TYPES, Picture, RunName, SharedObjects, encode_json
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import StoreError

KEYS = ("run_id", "trial_id", "repeat")
RESERVED = (*KEYS, "outcome", "reason", "run_seed")
"""Columns that say which run a row is of, and how it ended: no field of a configuration takes their place."""

OF_A_FIELD, OF_A_RECORD, OF_A_METRIC = "config_", "resolved_", "measured_"
"""Prefixes of a name that is taken: of a field of a configuration, of what is recorded of every run, and of a metric of
a training function."""


def distinct_names(names: Iterable[str], taken: Collection[str], prefix: str) -> dict[str, str]:
    """Name -> its column. A name that is taken gets the prefix, again until no other column has it; others stay."""
    columns = {name: name for name in names}
    used = {*taken, *columns}
    for name in [name for name in columns if name in taken]:
        column = prefix + name
        while column in used:
            column = prefix + column
        used.add(column)
        columns[name] = column
    return columns


FIRST_LANE = 1
"""Number of the lane that is always there. A lane is ranks that can serve the widest run of a sweep."""

STEP_QUANTILES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
"""Shares of a rank's counted steps at which its record says how long they took at most."""

Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Whole number of at most 64 bits."""

# Type checkers see these types as the record has them; the decoder checks what stands in the file.
if TYPE_CHECKING:
    FloatList = list[float]
    Metrics = dict[str, float]
else:
    FloatList = list[float | None]
    """Numbers; one that was not finite is null in JSON."""
    Metrics = dict[str, Int | float]
    """Finite numbers by the name of their `Metric`; what was not measured is not in it."""


class EpochRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One pass over the training samples, of all ranks together or of one rank."""

    epoch: Int
    """From 1; a user-defined training function may number its epochs otherwise."""
    metrics: Metrics = {}
    facts: dict[str, Any] = {}
    """Plain values that are no number, by name, which a user-defined training function reported."""

    @property
    def values(self) -> dict[str, Any]:
        """All of it by name, as ranks return it."""
        return {"epoch": self.epoch, **self.facts, **self.metrics}


class RankRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One rank of a run: times by its clock, memory, and results on its share of the samples."""

    rank: Int
    machine: str = ""
    device: str = ""
    pid: Int = 0
    metrics: Metrics = {}
    no_tensor_mem: str = ""
    """Why tensor_mem_mib is not known, in one line."""
    step_ms_quantiles: FloatList = []
    """Milliseconds of a counted step at each of `STEP_QUANTILES`, to four digits."""
    parameter_sketch: FloatList = []
    """Number, sum of squares and two random projections of the parameters after training; empty where unknown."""
    sampled_parameters: FloatList = []
    """A random projection of the parameters, relative to their norm, after optimizer steps 1, 2, 3, 5, 8, 13, ...;
    empty where unknown."""
    sample_digests: list[Int] = []
    """A number for each of its first batches, equal for equal ones; empty at world size 1."""
    utilization: dict[str, FloatList] = {}
    """Utilization of processor and GPU: for each quantity, its values at the sampled points."""
    epochs: list[EpochRecord] = []
    """The epochs of this rank, over its share of the samples."""

    @property
    def values(self) -> dict[str, Any]:
        """All but the epochs by name; the utilization as the mean of each sampled quantity."""
        fields = {name: getattr(self, name) for name in _RANK_FIELDS} | self.metrics
        for name, values in self.utilization.items():
            samples = [value for value in values if value is not None]
            if name != "at_s" and samples:
                fields[f"mean {name}"] = fmean(samples)
        return fields


_RANK_FIELDS = [name for name in RankRecord.__struct_fields__ if name not in ("metrics", "epochs", "utilization")]


SCHEMA = 2
"""Version of the record's layout. Records of another version are refused."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

# Type checkers see these types as the record has them after reading; the decoder checks what stands in the file.
if TYPE_CHECKING:
    SharedObject = dict[str, Any]
    NestedRecords = Any
else:
    SharedObject = Raw
    """JSON that stays undecoded, until `codec` replaces it by a dict that all records with the same JSON share."""
    NestedRecords = Raw
    """JSON that stays undecoded until it is used."""

Nested = TypeVar("Nested", EpochRecord, RankRecord)


class Series(msgspec.Struct, omit_defaults=True):
    """A number that a script prints or logs again and again."""

    first: FloatList = []
    """Its first values."""
    count: Int = 0
    """How many values there were."""


class RunValues(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the ranks of a run measured together: the same on each of them."""

    device: str = ""
    """The device that device=auto selected, with its name."""
    backend: str = ""
    """The backend that backend=auto selected; empty at world size 1, which has no process group."""
    not_recorded: str = ""
    """The values that a user-defined training function reported and that no record can hold, with what is wrong."""
    picture: Picture = ""
    """A JPEG in base64 that a user-defined training function returned as `picture`."""
    metrics: Metrics = {}
    facts: dict[str, Any] = {}
    """Plain values that are no number, by name: what a workload or a user-defined training function found out."""
    was_ended: bool = False
    """Whether a script was ended after its last counted step, before its own end."""
    series: dict[str, Series] = {}
    """The first values of each metric that a script printed or logged."""


class RunRecord(RunValues, kw_only=True, omit_defaults=True):
    """One run: one trial with one seed, and its one outcome."""

    schema: Int = msgspec.field(default_factory=lambda: SCHEMA)  # a factory, since defaults are not written
    run_id: RunName
    """`<trial_id>-<repeat>`: names the run within its folder, and is the same on every machine."""
    trial_id: RunName
    """The hash of the configuration, and of the user's code and data where the run has any."""
    workload: str = ""
    repeat: Count
    """From 0; also the number of the block the run belongs to."""
    order: Int
    """Place of the run in its sweep's order."""
    order_seed: Int
    """Seed of the order."""
    seed: Int
    """The seed this run trained with."""

    outcome: Outcome
    reason: str = ""
    """Why the outcome is not ok, in one line."""
    traceback: str = ""
    attempts: Count = 1
    """How often the run was started; 0 if it was skipped."""
    earlier_attempts: list[dict[str, Any]] = []
    """Outcome, reason and seconds of each attempt before the last."""
    independent_ranks: str = ""
    """Why its ranks did not train one model together; empty if they did, or where that is unknown."""
    step_losses: FloatList = []
    """Loss of each of the first optimizer steps, a mean over ranks and backward passes, up to where a rank has none."""
    step_passes: list[Int] = []
    """Backward passes of each of these steps; empty where each has one."""
    config: SharedObject = msgspec.field(default_factory=dict)
    proposed: dict[str, Any] = {}
    """What a searcher proposed."""
    sweep: str = ""
    session: str = ""
    """Start of the command that ran the run (UTC, ISO 8601)."""
    mode: str = "bench"
    """`bench`; `search` and `shared`, where runs share the machine: times are not comparable, or not recorded."""
    share_of_time_s: float = 0.0
    """Of a run that shared the ranks: its seconds times its share of them, which sum up to the time of the sweep."""

    started_at: str = ""
    """UTC, ISO 8601."""
    lane: Int = FIRST_LANE
    """Number of the lane on which it ran. Lanes measure at the same time."""
    beside: str = ""
    """What other lanes of its machine, which measured at the same time, do to the speed of a run; empty without any."""
    oversubscribed: bool = False
    """Whether the ranks had fewer CPU cores than threads."""
    code: SharedObject = msgspec.field(default_factory=dict)
    """As `Identity.code`; empty for runs of this package's code alone."""
    data: SharedObject = msgspec.field(default_factory=dict)
    """As `Identity.data`."""
    machine: SharedObject = msgspec.field(default_factory=dict)
    """Description of the first rank's machine; the key `beside` has a line for each of the other machines."""
    versions: SharedObject = msgspec.field(default_factory=dict)
    git: SharedObject = msgspec.field(default_factory=dict)
    # Epochs and ranks are most of a line, and a reader of many runs seldom needs them, so they stay undecoded until
    # they are used.
    _epochs: NestedRecords = msgspec.field(name="epochs", default_factory=list)
    _ranks: NestedRecords = msgspec.field(name="ranks", default_factory=list)

    @property
    def epochs(self) -> list[EpochRecord]:
        """The epochs, over all ranks.

        Raises:
            StoreError: the record was read, and its epochs are not valid; `ranks` likewise.
        """
        return self._decoded("_epochs", EpochRecord)

    @epochs.setter
    def epochs(self, epochs: list[EpochRecord]) -> None:
        self._epochs = epochs

    @property
    def ranks(self) -> list[RankRecord]:
        """The ranks that returned a result, in their order."""
        return self._decoded("_ranks", RankRecord)

    @ranks.setter
    def ranks(self, ranks: list[RankRecord]) -> None:
        self._ranks = ranks

    def _decoded(self, name: str, cls: type[Nested]) -> list[Nested]:
        """The list of a field that stays JSON until its first use."""
        content = getattr(self, name)
        if isinstance(content, Raw):
            try:
                content = msgspec.json.decode(content, type=list[cls])  # type: ignore[valid-type]
            except (ValueError, RecursionError) as error:
                raise StoreError(
                    f"the epochs and ranks of run {self.run_id} cannot be read ({type(error).__name__}: {error}); "
                    "remove its line from runs.jsonl."
                ) from error
            setattr(self, name, content)
        return content

    @property
    def folder(self) -> str:
        """The folder of the run's files, relative to the results folder."""
        return f"runs/{self.run_id}"

    @property
    def ending(self) -> str:
        """The outcome; `stopped` if a search's scheduler stopped the run, whose metrics are those of an early epoch."""
        return "stopped" if self.outcome is Outcome.OK and self.is_stopped else self.outcome.value

    @property
    def is_stopped(self) -> bool:
        """Whether a search's scheduler stopped the run."""
        return "stopped_epoch" in self.metrics

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunRecord) and all(getattr(self, name) == getattr(other, name) for name in RUN_FIELDS)

    @classmethod
    def from_json(cls, line: bytes, shared: SharedObjects | None = None) -> RunRecord:
        """The record of a line of runs.jsonl. Unknown keys are left out.

        Args:
            line: one JSON object.
            shared: what gives all records with equal configurations one dict of them, and so on.

        Raises:
            ValueError, RecursionError: it is not a valid record. Of epochs and ranks, only the syntax is checked here;
                their values are checked at the first use, with a StoreError.
        """
        record = _DECODER.decode(line)
        if record.started_at:
            datetime.fromisoformat(record.started_at)
        shared = shared or SharedObjects()
        for name in SHARED_TYPES:
            setattr(record, name, shared.decode(name, getattr(record, name)))
        # Copies, since the originals refer to the whole line.
        record._epochs, record._ranks = record._epochs.copy(), record._ranks.copy()
        return record

    def to_json(self) -> bytes:
        """The record as one line of runs.jsonl, without a newline; empty values and defaults are left out."""
        return encode_json(self)

    def to_dict(self) -> dict[str, Any]:
        """The plain values by name that are no defaults."""
        plain: dict[str, Any] = msgspec.json.decode(self.to_json())
        return plain

    def replace(self, **changes: Any) -> RunRecord:
        """A copy with some fields changed."""
        named = {f"_{name}" if name in ("epochs", "ranks") else name: value for name, value in changes.items()}
        return msgspec.structs.replace(self, **named)


RUN_FIELDS: tuple[str, ...] = RunRecord.__struct_encode_fields__
"""Names of the fields of a `RunRecord`."""

_DECODER = msgspec.json.Decoder(RunRecord)


class Durations:
    """How long runs that ended ok took, by trial."""

    def __init__(self, records: Iterable[RunRecord] = ()) -> None:
        self._all: list[float] = []
        self._of: dict[str, list[float]] = {}
        for record in records:
            seconds = seconds_of_run(record)
            if record.outcome is Outcome.OK and seconds:
                self._all.append(seconds)
                self._of.setdefault(record.trial_id, []).append(seconds)

    def has(self, trial_id: str) -> bool:
        """Whether a run of a trial is among them."""
        return trial_id in self._of

    def expected_s(self, trial_id: str) -> float | None:
        """Seconds that a run will take: the median of its trial's, else of all; None where there are none."""
        measured = self._of.get(trial_id) or self._all
        return median(measured) if measured else None


def seconds_of_run(record: RunRecord) -> float:
    """Seconds of a run with what the sweep needs besides: memory measured, and the time since the run before."""
    return record.share_of_time_s + sum(
        record.metrics.get(name, 0.0) for name in ("total_s", "instruments_s", "overhead_s")
    )
