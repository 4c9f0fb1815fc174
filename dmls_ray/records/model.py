"""Data model of a run: one `RunRecord` with its epochs and its ranks, as plain values.

Seconds end in `_s`, milliseconds in `_ms` or `_ms_...`, memory in `_mib`. Accuracies are fractions from 0 to 1. Losses
are means over samples.

One class because it is one table, with a line and a docstring for each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Raw

from dmls_ray.records.codec import SharedObjects, encode_json
from dmls_ray.records.epoch_and_rank import EpochRecord, Int, Nested, RankRecord, decode_rows
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.validation import SHARED_CHECKS, check_moment, check_name, check_picture, check_plain
from dmls_ray.util.errors import StoreError

SCHEMA = 1
"""Version of the record's layout; raised when an older reader would misread a record."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

# Type checkers see these types as the record has them after reading; the decoder checks what stands in the file.
if TYPE_CHECKING:
    SharedObject = dict[str, Any]
    NestedRecords = Any
    Total = int
else:
    SharedObject = Raw
    """JSON that stays undecoded, until `codec` replaces it by a dict that all records with the same JSON share."""
    Total = Int | float
    """Whole number, which a user-defined function may return as a float."""
    NestedRecords = Raw
    """JSON that stays undecoded until it is used."""

_EMPTY_LIST = Raw(b"[]")


class RunRecord(msgspec.Struct, kw_only=True):
    """One run: one trial with one seed, and its one outcome."""

    schema: Int = SCHEMA
    run_id: str
    """`<trial_id>-<repeat>`: names the run within its folder, and is the same on every machine."""
    trial_id: str
    """The configuration's hash."""
    workload: str = ""
    """Name of the workload; empty in older records."""
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
    config: SharedObject = msgspec.field(default_factory=dict)
    sweep: str = ""
    session: str = ""
    """Start of the command that ran the run (UTC, ISO 8601)."""
    isolation: str = ""
    mode: str = "bench"
    """`bench`, or `search`, where runs share the machine and their times are not comparable."""
    proposed: dict[str, Any] = msgspec.field(default_factory=dict)
    """What a searcher proposed."""
    oversubscribed: bool = False
    """Whether the ranks had fewer CPU cores than threads."""
    independent_ranks: str = ""
    """Why its ranks did not train one model together; empty if they did, or where that is unknown."""
    attempts: Count = 1
    """How often the run was started; 0 if it was skipped."""
    earlier_attempts: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """Outcome, reason and seconds of each attempt before the last."""
    started_at: str = ""
    """UTC, ISO 8601."""
    load_average: float | None = None
    """One-minute load average of the driver's machine at the start."""

    device: str = ""
    """The device that device=auto selected, with its name."""
    backend: str = ""
    """The backend that backend=auto selected; empty at world size 1, which has no process group."""
    parameters: Total | None = None
    """Trainable parameters of the model."""
    scaled_lr: float | None = None
    """The learning rate after lr_scaling."""
    train_samples: Total | None = None
    test_samples: Total | None = None
    validation_samples: Total | None = None
    steps: Int | None = None
    """Optimizer steps, warm-up included."""
    warmup_steps: Int | None = None
    skipped_steps: Int | None = None
    """amp-fp16: steps without an update, since a gradient was not finite."""
    fast_units: bool | None = None
    """Whether the device computes faster in this precision than in fp32."""
    vnni: bool | None = None
    """With quantization: whether the x86 processors of all ranks have VNNI or AMX. If False, int8 weights have 7 bits.
    None on other processors, and in older records, whose weights have 8 bits."""
    compile_s: float | None = None
    """Seconds of setup_s that torch.compile took."""
    compile_cache: str = ""
    """`cold`, `warm` or `mixed`: whether the compiled graphs were in the cache on disk."""
    resumed_epoch: Int | None = None
    """The last epoch of the checkpoint from which the run resumed."""
    stopped_epoch: Int | None = None
    """The epoch after which a search's scheduler stopped the run."""
    gradient_noise_scale: float | None = None
    """In samples; with noise_scale only."""
    quantize_s: float | None = None
    """Seconds of converting and compiling to int8, over all epochs; part of between_s and inference_s."""
    fp32_test_accuracy: float | None = None
    """With quantization: of the trained model in fp32."""
    int8_test_accuracy: float | None = None
    """With quantization: of its int8 form."""
    fp32_checkpoint_bytes: Int | None = None
    int8_checkpoint_bytes: Int | None = None
    fp32_eager_ms_p50: float | None = None
    fp32_eager_ms_p95: float | None = None
    fp32_compiled_ms_p50: float | None = None
    fp32_compiled_ms_p95: float | None = None
    int8_compiled_ms_p50: float | None = None
    int8_compiled_ms_p95: float | None = None
    """Latency of a forward pass of inference_batch samples, on one rank, as the five above."""

    setup_s: float | None = None
    warmup_s: float | None = None
    train_s: float | None = None
    eval_s: float | None = None
    checkpoint_s: float | None = None
    inference_s: float | None = None
    between_s: float | None = None
    total_s: float | None = None
    instruments_s: float | None = None
    overhead_s: float | None = None
    """Time that the orchestration added to total_s and instruments_s, measured by the driver."""
    images_per_s: float | None = None
    """Samples of the counted steps, all ranks, divided by train_s."""
    epoch_s: float | None = None
    """Seconds that the training steps of one epoch take at images_per_s."""
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    start_mem_mib: float | None = None
    peak_mem_mib: float | None = None
    """Of the rank with the highest peak."""
    peak_reserved_mib: float | None = None
    tensor_mem_mib: float | None = None
    """Of the rank with the largest; the five kinds below are of the same rank, so that they add up."""
    parameter_mem_mib: float | None = None
    gradient_mem_mib: float | None = None
    optimizer_mem_mib: float | None = None
    activation_mem_mib: float | None = None
    other_mem_mib: float | None = None
    device_mem_mib: float | None = None
    data_mib: float | None = None
    host_mem_mib: float | None = None
    data_wait_ms: float | None = None
    """This and the four below are means over the ranks; in records without it, forward_ms and backward_ms are of the
    slowest rank."""
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None
    rest_ms: float | None = None
    comm_ms: float | None = None
    overlap_ms: float | None = None
    exposed_comm_ms: float | None = None
    """Of the rank with the least, which waits for no other; of the rank with the most in records without
    straggler_wait_ms."""
    straggler_wait_ms: float | None = None
    """The largest exposed_comm_ms of a rank minus the least."""
    link_round_trip_ms: float | None = None
    """Between the machines of the run, before it trained."""
    link_mbit_per_s: float | None = None
    """Likewise, in one direction."""
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    """Of the last epoch, as the losses and accuracies above; with early stopping, of the best epoch. The train accuracy
    is train_eval_accuracy where that was measured."""
    train_eval_loss: float | None = None
    train_eval_accuracy: float | None = None
    """Of the trained model, in eval mode, on train_eval_samples training samples without augmentation."""
    train_eval_samples: Int | None = None
    """As many as test_samples, or all training samples."""
    best_epoch: Int | None = None
    """With early stopping: the epoch whose weights were restored."""
    overfit_epoch: Int | None = None
    """The epoch after the lowest test loss, if test loss ended higher and train loss lower than there."""
    loss_gap: float | None = None
    """test_loss - train_eval_loss; in records without it, test_loss - train_loss of the same epoch."""
    accuracy_gap: float | None = None
    """train_accuracy - test_accuracy."""
    target_epoch: Int | None = None
    """The epoch in which a test first reached target_accuracy; None: no test did."""
    target_steps: Int | None = None
    """Optimizer steps until then."""
    target_s: float | None = None
    """Seconds from assignment until then, with set-up and the test after each epoch, without tests within epochs."""
    measures: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values by name that have no field: returned by a user-defined function, or reported for its last epoch."""
    not_recorded: str = ""
    """The values that a user-defined training function reported and that no record can hold, with what is wrong."""
    picture: str = ""
    """A JPEG in base64 that a user-defined training function returned as `picture`."""

    code: SharedObject = msgspec.field(default_factory=dict)
    """Digest of each source file of the user that the run imports, by its path below the folder of imports; of a
    function without a module, by its name and `()`. Empty in older records, and for runs of this package's code alone.
    """
    data: SharedObject = msgspec.field(default_factory=dict)
    """Fingerprint of each data set of the run, by its name in the configuration. Empty in older records."""
    machine: SharedObject = msgspec.field(default_factory=dict)
    """Description of the first rank's machine; the key `beside` has a line for each of the other machines."""
    versions: SharedObject = msgspec.field(default_factory=dict)
    git: SharedObject = msgspec.field(default_factory=dict)
    # Epochs and ranks are most of a line, and a reader of many runs seldom needs them, so they stay undecoded until
    # they are used. They are the last fields: the first version of this package reads no other order lazily.
    _epochs: NestedRecords = msgspec.field(name="epochs", default=_EMPTY_LIST)
    _ranks: NestedRecords = msgspec.field(name="ranks", default=_EMPTY_LIST)

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
                rows = decode_rows(content, cls)
            except (ValueError, TypeError, RecursionError) as error:
                raise StoreError(
                    f"the epochs and ranks of run {self.run_id} cannot be read ({type(error).__name__}: {error}); "
                    "remove its line from runs.jsonl."
                ) from error
            setattr(self, name, rows)
            return rows
        return content

    @property
    def ending(self) -> str:
        """The outcome; `stopped` if a search's scheduler stopped the run, whose metrics are those of an early epoch."""
        is_stopped = self.outcome is Outcome.OK and self.stopped_epoch is not None
        return "stopped" if is_stopped else self.outcome.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunRecord) and self.to_dict() == other.to_dict()

    @classmethod
    def from_json(cls, line: bytes, shared: SharedObjects | None = None) -> RunRecord:
        """The record of a line of runs.jsonl, by this version or an older one. Unknown keys are left out.

        Args:
            line: one JSON object.
            shared: what gives all records with equal configurations one dict of them, and so on.

        Raises:
            ValueError, RecursionError: it is not a valid record. Of epochs and ranks, only the syntax is checked here;
                their values are checked at the first use, with a StoreError.
        """
        record = _DECODER.decode(line)
        check_name("run_id", record.run_id)
        check_name("trial_id", record.trial_id)
        check_moment("started_at", record.started_at)
        if record.picture:
            check_picture("picture", record.picture)
        for name in ("measures", "proposed", "earlier_attempts"):
            check_plain(name, getattr(record, name))
        shared = shared or SharedObjects()
        for name in SHARED_CHECKS:
            setattr(record, name, shared.decode(name, getattr(record, name)))
        # A copy, since the original refers to the whole line.
        record._epochs, record._ranks = record._epochs.copy(), record._ranks.copy()
        return record

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunRecord:
        """The record of the values that `to_dict` returns.

        Raises:
            ValueError: it is not a valid record.
            StoreError: its epochs or ranks are not valid.
        """
        record = cls.from_json(encode_json(values))
        _ = record.epochs, record.ranks
        return record

    def to_json(self) -> bytes:
        """The record as one line of runs.jsonl, without a newline; a number that is not finite becomes null."""
        return encode_json(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name; a number that is not finite becomes None."""
        plain: dict[str, Any] = msgspec.json.decode(self.to_json())
        return plain

    def replace(self, **changes: Any) -> RunRecord:
        """A copy with some fields changed."""
        changes = {f"_{name}" if name in ("epochs", "ranks") else name: value for name, value in changes.items()}
        return msgspec.structs.replace(self, **changes)


RUN_FIELDS: tuple[str, ...] = RunRecord.__struct_encode_fields__
"""Names of the fields of a `RunRecord`."""

_DECODER = msgspec.json.Decoder(RunRecord)
