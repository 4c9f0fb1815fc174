"""Data model of a run: one `RunRecord` with its epochs and its ranks, as plain values.

The numbers of a run, an epoch and a rank are in its `metrics`, by the name of their `Metric`, which says what they
mean. Seconds end in `_s`, milliseconds in `_ms` or `_ms_...`, memory in `_mib`. Accuracies are fractions from 0 to 1.
Losses are means over samples.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from dmls_ray.records.codec import SharedObjects, encode_json
from dmls_ray.records.epoch_and_rank import EpochRecord, Int, Metrics, RankRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.validation import SHARED_TYPES, Picture, RunName
from dmls_ray.util.errors import StoreError

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

    config: SharedObject = msgspec.field(default_factory=dict)
    proposed: dict[str, Any] = {}
    """What a searcher proposed."""
    sweep: str = ""
    session: str = ""
    """Start of the command that ran the run (UTC, ISO 8601)."""
    isolation: str = ""
    mode: str = "bench"
    """`bench`, or `search`, where runs share the machine and their times are not comparable."""

    started_at: str = ""
    """UTC, ISO 8601."""
    oversubscribed: bool = False
    """Whether the ranks had fewer CPU cores than threads."""
    load_average: float | None = None
    """One-minute load average of the driver's machine at the start."""
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
        changes = {f"_{name}" if name in ("epochs", "ranks") else name: value for name, value in changes.items()}
        return msgspec.structs.replace(self, **changes)


RUN_FIELDS: tuple[str, ...] = RunRecord.__struct_encode_fields__
"""Names of the fields of a `RunRecord`."""

_DECODER = msgspec.json.Decoder(RunRecord)
