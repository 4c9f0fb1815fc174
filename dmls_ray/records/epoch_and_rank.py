"""Parts of the record of a run: its epochs and its ranks, as plain values.

Seconds end in `_s`, milliseconds in `_ms` or `_ms_...`, memory in `_mib`. Accuracies are fractions from 0 to 1. Losses
are means over samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from dmls_ray.records.validation import check_plain

STEP_QUANTILES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
"""Shares of a rank's counted steps at which its record says how long they took at most."""

Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Whole number of at most 64 bits."""

# Type checkers see this type as the record has it after reading; the decoder checks what stands in the file.
if TYPE_CHECKING:
    FloatList = list[float]
else:
    FloatList = list[float | None]
    """Numbers; one that was not finite is null in JSON."""


@dataclass(kw_only=True, slots=True)
class EpochRecord:
    """One pass over the training samples, all ranks together."""

    epoch: Int
    """From 1; a user-defined training function may number its epochs otherwise."""
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    """Of the samples that validation_share holds out."""
    train_s: float | None = None
    """Seconds of counted training steps, from the barrier to the last rank. Of times and samples, None is what a
    user-defined function does not report."""
    warmup_s: float | None = None
    """Seconds of the steps that count in no rate."""
    eval_s: float | None = None
    """Seconds of the test pass, to the last rank."""
    ended_s: float | None = None
    """Seconds from the assignment of the run to the end of the epoch and its test, on the last rank. None in older
    records."""
    images: Int | None = None
    """Samples trained on in the counted steps, all ranks."""
    images_per_s: float | None = None
    measures: dict[str, Any] = field(default_factory=dict)
    """Values by name that a user-defined training function reported and that have no field."""

    @property
    def seconds(self) -> float:
        """Seconds of the epoch, as far as they are known."""
        return (self.warmup_s or 0.0) + (self.train_s or 0.0) + (self.eval_s or 0.0)


def epoch_ends(epochs: Iterable[EpochRecord], setup_s: float | None) -> list[float]:
    """Seconds from the assignment of the run to the end of each epoch.

    Where an epoch has no `ended_s`, its seconds are added to the end of the epoch before, or to `setup_s`.
    """
    ends: list[float] = []
    elapsed = setup_s or 0.0
    for epoch in epochs:
        elapsed = elapsed + epoch.seconds if epoch.ended_s is None else epoch.ended_s
        ends.append(elapsed)
    return ends


@dataclass(kw_only=True, slots=True)
class RankRecord:
    """One rank of a run: times by its clock, memory, and results on its share of the samples."""

    rank: Int
    machine: str = ""
    device: str = ""
    pid: Int = 0
    setup_s: float | None = None
    warmup_s: float | None = None
    train_s: float | None = None
    eval_s: float | None = None
    checkpoint_s: float | None = None
    inference_s: float | None = None
    """After the last epoch: converting to int8, testing both forms, and timing inference."""
    between_s: float | None = None
    """In none of these phases: between epochs, waiting for the other ranks and adding up losses with them."""
    total_s: float | None = None
    instruments_s: float | None = None
    """Link probe and whatever else measures outside of training: in no phase, and not in total_s."""
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    step_ms_quantiles: FloatList = field(default_factory=list)
    """Milliseconds of a counted step at each of `STEP_QUANTILES`, to four digits; empty in older records."""
    start_mem_mib: float | None = None
    """CPU: resident set when the run began; GPU: allocated then."""
    peak_mem_mib: float | None = None
    """CPU: peak resident set of the run; GPU: peak allocated."""
    peak_reserved_mib: float | None = None
    """GPU only: peak that the caching allocator reserved."""
    tensor_mem_mib: float | None = None
    """Peak of the tensors in a training step; the five kinds below are its parts at that moment."""
    parameter_mem_mib: float | None = None
    gradient_mem_mib: float | None = None
    """Gradients, and DDP's buckets of them."""
    optimizer_mem_mib: float | None = None
    """State of the optimizer; with ZeRO, this rank's share."""
    activation_mem_mib: float | None = None
    """What the forward pass keeps for the backward pass, outputs and loss included."""
    other_mem_mib: float | None = None
    """The batch, buffers of the model, and what operations need in passing."""
    no_tensor_mem: str = ""
    """Why tensor_mem_mib is not known, in one line."""
    device_mem_mib: float | None = None
    """GPU only: peak allocated in training, without the data set on the device."""
    data_mib: float | None = None
    """Size of the data set that lies on the device."""
    host_mem_mib: float | None = None
    """CPU only: peak resident set in training minus the resident set before the run, without pages of files."""
    data_wait_ms: float | None = None
    """This and the four below are parts of a counted step. With exposed_comm_ms they add up to it."""
    forward_ms: float | None = None
    """With the loss. In records without data_wait_ms this and backward_ms are of a pass, by DDP's timers."""
    backward_ms: float | None = None
    """Computation of the backward pass."""
    optimizer_ms: float | None = None
    rest_ms: float | None = None
    """Sums of losses and hits, and what the loop itself takes."""
    comm_ms: float | None = None
    """Communication of gradients in one backward pass, from the first bucket to the last, by DDP's timers."""
    overlap_ms: float | None = None
    """The part of comm_ms that overlaps with computation."""
    exposed_comm_ms: float | None = None
    """comm_ms - overlap_ms, with what the rank waits for slower ranks."""
    collectives: Int | None = None
    """Collectives of torch.distributed while the rank trained; None where its backend does not count them."""
    optimizer_steps: Int | None = None
    """Steps of the optimizer that made most."""
    parameter_sketch: FloatList = field(default_factory=list)
    """Number, sum of squares and two random projections of the parameters after training; empty where unknown."""
    sampled_parameters: FloatList = field(default_factory=list)
    """A random projection of the parameters, relative to their norm, after optimizer steps 1, 2, 3, 5, 8, 13, ...;
    empty where unknown."""
    sampled_losses: FloatList = field(default_factory=list)
    """The loss of the last backward pass before each of these samples; None where that was no loss."""
    utilization: dict[str, FloatList] = field(default_factory=dict)
    """Utilization of processor and GPU: for each quantity, its values at the sampled points."""
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """The epochs of this rank, over its share of the samples."""


Nested = TypeVar("Nested", EpochRecord, RankRecord)


def decode_rows(content: Raw, cls: type[Nested]) -> list[Nested]:
    """Decode and check a list of epochs or ranks.

    Raises:
        TypeError, ValueError: it is no list of such objects.
    """
    values = msgspec.json.decode(content, type=list[dict[str, Any]])
    rows: list[Nested] = msgspec.convert([_without_nulls(row) for row in values], list[cls])  # type: ignore[valid-type]
    for row in rows:
        if isinstance(row, EpochRecord):
            check_plain("measures", row.measures)
            if not (row.train_s or row.warmup_s or row.eval_s or row.images):
                # Older records have zeros where a user-defined function reported nothing.
                row.train_s = row.warmup_s = row.eval_s = row.images = None
        else:
            for epoch in row.epochs:
                check_plain("epochs", epoch)
                msgspec.convert(_without_nulls(epoch), EpochRecord)
    return rows


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not None. A field of the others gets its default: JSON has null for what was not finite."""
    return {name: value for name, value in values.items() if value is not None}
