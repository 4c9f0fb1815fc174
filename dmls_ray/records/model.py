"""What a run leaves behind: one `RunRecord` with its epochs and its ranks inside, as plain values.

Names and units are those of the README's "Reading the numbers": seconds end in `_s`, milliseconds in `_ms_…`, memory in
`_mib`; accuracies are fractions from 0 to 1; losses are means over samples.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import orjson

from dmls_ray.config.runtime import RUNTIME_FIELDS
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.validation import (
    check_at_least,
    check_facts,
    check_fields,
    check_moment,
    check_name,
    check_picture,
)
from dmls_ray.util.errors import StoreError
from dmls_ray.workloads.classification.config import TrialConfig

if TYPE_CHECKING:
    from dmls_ray.records.run_events import RankResult

SCHEMA = 1
"""Version of the record's layout; raised when an older reader would misread a record."""


STEP_QUANTILES = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
"""Shares of a rank's counted steps at which its record says how long they took at most."""


@dataclass(kw_only=True, slots=True)
class EpochRecord:
    """One pass over the training samples, all ranks together."""

    epoch: int
    """From 1."""
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    """Of the samples that validation_share holds out."""
    train_s: float = 0.0
    """Seconds of counted training steps, from the barrier to the last rank."""
    warmup_s: float = 0.0
    """Seconds of the steps that count in no rate."""
    eval_s: float = 0.0
    """Seconds of the test pass, to the last rank."""
    images: int = 0
    """Samples trained on in the counted steps, all ranks."""
    images_per_s: float | None = None
    measures: dict[str, Any] = field(default_factory=dict)
    """What a training function of the user's own told besides."""


@dataclass(kw_only=True, slots=True)
class RankRecord:
    """One rank of a run: its own clock, memory and share of the samples."""

    rank: int
    machine: str = ""
    device: str = ""
    pid: int = 0
    setup_s: float | None = None
    warmup_s: float | None = None
    train_s: float | None = None
    eval_s: float | None = None
    checkpoint_s: float | None = None
    inference_s: float | None = None
    """After the last epoch: converting to int8, testing both forms, and timing inference."""
    total_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    step_ms_quantiles: list[float] = field(default_factory=list)
    """Milliseconds of a counted step at each of `STEP_QUANTILES`, to four digits; empty in older records."""
    start_mem_mib: float | None = None
    """CPU: resident set when the run began; GPU: allocated then."""
    peak_mem_mib: float | None = None
    """CPU: peak resident set of the run; GPU: peak allocated."""
    peak_reserved_mib: float | None = None
    """GPU only: peak that the caching allocator held."""
    forward_ms: float | None = None
    backward_ms: float | None = None
    """Computation of the backward pass."""
    comm_ms: float | None = None
    """Communication of gradients, from the first bucket to the last; a pass, as DDP's timers have it."""
    overlap_ms: float | None = None
    """How much of comm_ms computation hides."""
    exposed_comm_ms: float | None = None
    """comm_ms - overlap_ms."""
    utilization: dict[str, list[float]] = field(default_factory=dict)
    """How busy processor and GPU were: a list a quantity, point by point."""
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """This rank's own epochs, over its own share of the samples."""


_NESTED = b',"epochs":['
"""Where in a line its epochs begin; its ranks follow, and nothing else. Within a string its quotes would be escaped."""


class _ReadLater:
    """Room for the epochs and ranks of a record as JSON, until they are asked for."""

    __slots__ = ("_unread",)


@dataclass(kw_only=True, slots=True)
class RunRecord(_ReadLater):
    """One run: one trial with one seed, and its one outcome."""

    schema: int = SCHEMA
    run_id: str
    """`<trial_id>-<repeat>`: names the run within its folder, and is the same on every machine."""
    trial_id: str
    """The configuration's hash."""
    repeat: int
    """From 0; also the number of the block the run belongs to."""
    order: int
    """Place of the run in its sweep's order."""
    order_seed: int
    """Seed of that order."""
    seed: int
    """The seed this run trained with."""
    outcome: Outcome
    reason: str = ""
    """Why the outcome is not ok, in one line."""
    traceback: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    sweep: str = ""
    session: str = ""
    """When the command that ran it was started (UTC, ISO 8601)."""
    isolation: str = ""
    mode: str = "bench"
    """`search` where runs went side by side: then times say nothing."""
    proposed: dict[str, Any] = field(default_factory=dict)
    """What a searcher proposed."""
    oversubscribed: bool = False
    """Whether the ranks had fewer CPU cores than threads."""
    attempts: int = 1
    """How often it was begun; 0 where it was not."""
    earlier_attempts: list[dict[str, Any]] = field(default_factory=list)
    """Outcome, reason and seconds of each attempt before the last."""
    started_at: str = ""
    """UTC, ISO 8601."""
    load_average: float | None = None
    """One-minute load average of the driver's machine at the start."""

    device: str = ""
    """What device=auto became, with the device's name."""
    backend: str = ""
    """What backend=auto became; empty at world size 1, where there is no process group."""
    parameters: int | None = None
    """Trainable parameters of the model."""
    scaled_lr: float | None = None
    """The learning rate after lr_scaling."""
    train_samples: int | None = None
    test_samples: int | None = None
    validation_samples: int | None = None
    steps: int | None = None
    """Optimizer steps, warm-up included."""
    warmup_steps: int | None = None
    skipped_steps: int | None = None
    """amp-fp16: steps left out since a gradient was not finite."""
    fast_units: bool | None = None
    """Whether the device computes faster in this precision than in fp32."""
    compile_s: float | None = None
    """Seconds of setup_s that torch.compile took."""
    compile_cache: str = ""
    """`cold`, `warm` or `mixed`: whether the compiled graphs lay in the cache on disk."""
    resumed_epoch: int | None = None
    """The epoch after which the run was taken up from a checkpoint."""
    stopped_epoch: int | None = None
    """The epoch after which a search's scheduler stopped the run."""
    gradient_noise_scale: float | None = None
    """In samples; where noise_scale asks for it."""
    quantize_s: float | None = None
    """Seconds of converting and compiling to int8, over all epochs; part of eval_s and inference_s."""
    fp32_test_accuracy: float | None = None
    """With quantization: of the trained model in fp32."""
    int8_test_accuracy: float | None = None
    """With quantization: of its int8 form."""
    fp32_checkpoint_bytes: int | None = None
    int8_checkpoint_bytes: int | None = None
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
    total_s: float | None = None
    overhead_s: float | None = None
    """What the orchestration added around total_s, seen from the driver."""
    images_per_s: float | None = None
    """Samples of the counted steps, all ranks, divided by train_s."""
    epoch_s: float | None = None
    """Seconds that the training steps of one epoch take at images_per_s."""
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    start_mem_mib: float | None = None
    peak_mem_mib: float | None = None
    """Of the rank that needed most."""
    peak_reserved_mib: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    comm_ms: float | None = None
    overlap_ms: float | None = None
    exposed_comm_ms: float | None = None
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
    """Of the last epoch, as the losses and accuracies above; with early stopping of the best, whose weights stay."""
    best_epoch: int | None = None
    """The epoch that early stopping went back to."""
    overfit_epoch: int | None = None
    """The first epoch after that of the least test loss, where test loss ended higher and train loss lower."""
    loss_gap: float | None = None
    """test_loss - train_loss, of the same epoch as they are."""
    accuracy_gap: float | None = None
    """train_accuracy - test_accuracy, likewise."""
    target_epoch: int | None = None
    """The first epoch whose test accuracy reached target_accuracy; None: not yet."""
    target_steps: int | None = None
    """Optimizer steps until then."""
    target_s: float | None = None
    """Seconds from assignment until then, set-up and tests included."""
    measures: dict[str, Any] = field(default_factory=dict)
    """What a training function of the user's own returned, or told of its last epoch, besides."""
    picture: str = ""
    """A JPEG in base64, that a training function of the user's own returned as `picture`."""

    machine: dict[str, Any] = field(default_factory=dict)
    """That of the first rank; `beside` tells of the others, a line each, where there are several."""
    versions: dict[str, Any] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    epochs: list[EpochRecord] = field(default_factory=list)
    ranks: list[RankRecord] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only; a number that is not finite becomes None, which JSON can hold."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunRecord:
        """The record that `to_dict` wrote, by this version or an older one; keys it does not know are left out.

        Raises:
            KeyError, TypeError, ValueError: it is no such record.
        """
        nested = {name: values.get(name, ()) for name in ("epochs", "ranks")}
        for item in nested["epochs"]:
            item["epoch"]
        for item in nested["ranks"]:
            item["rank"]
        return cls._of(values, dump_small(nested))

    @classmethod
    def from_json(cls, line: bytes, share: Callable[[dict[str, Any]], None] = lambda values: None) -> RunRecord:
        """The record of a line of JSON, as `to_dict` has it.

        Args:
            line: the whole of it.
            share: is given its values before the record is made of them, but for epochs and ranks.

        Raises:
            KeyError, TypeError, ValueError: it is no such record. What is wrong with its epochs and ranks is found when
                they are asked for, and then a StoreError.
        """
        head, mark, tail = line.rstrip().partition(_NESTED)
        if mark and tail.endswith(b"]}"):
            try:
                values = orjson.loads(head + b"}")
            except ValueError:
                values = {}  # the mark was within something else
            # What comes before epochs and ranks is all there is, if it ends as this version ends it.
            if next(reversed(values), "") == "git":
                share(values)
                return cls._of(values, (b"{" + _NESTED[1:] + tail).decode())
        values = orjson.loads(line)
        share(values)
        return cls.from_dict(values)

    @classmethod
    def _of(cls, values: Mapping[str, Any], nested: str) -> RunRecord:
        """Epochs and ranks stay JSON until one of them is asked for: as objects they are most of a record's memory, and
        to read them is most of the time; who reads many runs seldom asks.
        """
        known = _known(cls, values)
        _check_run(known)
        record = cls(**{**known, "outcome": Outcome(values["outcome"])})
        object.__setattr__(record, "_unread", nested)  # mypy knows of no slots but those of fields
        del record.epochs, record.ranks
        return record

    if not TYPE_CHECKING:  # which would take any name for an attribute from here on

        def __getattr__(self, name: str) -> Any:
            # Asked for a slot that is empty: `from_dict` leaves those of epochs and ranks so.
            if name not in ("epochs", "ranks"):
                raise AttributeError(f"RunRecord has no {name}", name=name, obj=self)
            try:
                nested = {"epochs": [], "ranks": []} | orjson.loads(self._unread)
                if len(nested) > 2:
                    raise ValueError(f"{', '.join(nested)} in their place")
                epochs = [EpochRecord(**_read(EpochRecord, item)) for item in nested["epochs"]]
                ranks = [RankRecord(**_read(RankRecord, item)) for item in nested["ranks"]]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StoreError(
                    f"the epochs and ranks of run {self.run_id} cannot be read ({type(error).__name__}: {error}); "
                    "remove its line from runs.jsonl."
                ) from error
            self.epochs, self.ranks = epochs, ranks
            del self._unread
            return getattr(self, name)

    def take_results(self, results: Sequence[RankResult]) -> None:
        """Fill in what the ranks measured; see `records.aggregate`."""
        from dmls_ray.records.aggregate import take_results

        take_results(self, results)

    def take_epochs(self, epochs: list[EpochRecord]) -> None:
        """Fill in the epochs and what follows from them; see `records.aggregate`."""
        from dmls_ray.records.aggregate import take_epochs

        take_epochs(self, epochs)


def dump_small(values: Any) -> str:
    """Values as JSON that takes no more memory than its length."""
    # What orjson.dumps returns keeps the buffer that it was written into, several times as large.
    return orjson.dumps(values).decode()


def _known(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    # With the fields' own strings for keys: Python finds a keyword by its identity, and by comparing only after that.
    return {name: values[name] for name in _names(cls) if name in values}


def _read(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Likewise, of what was written: a number that was not finite was written as null, and is its default where that is
    a number.
    """
    known = _known(cls, values)
    known |= {name: default for name, default in _numbers(cls) if known.get(name, default) is None}
    check_fields(cls, known, any_number=_ANY_NUMBER)
    for item in known.get("epochs", ()):
        _read(EpochRecord, item)["epoch"]
    return known


def _check_run(known: Mapping[str, Any]) -> None:
    """Refuse what is no run: the folder may come from anybody, and a run names folders and files.

    Raises:
        ValueError: with the field that is wrong.
    """
    check_fields(RunRecord, known, any_number=_ANY_NUMBER, closed=_SHARED)
    check_name("run_id", known["run_id"])
    check_name("trial_id", known["trial_id"])
    check_moment("started_at", known.get("started_at", ""))
    check_at_least(0, known, ("repeat", "attempts"))
    if picture := known.get("picture"):
        check_picture("picture", picture)
    shared = [known.get(name) for name in _SHARED]
    # Many records share one object of each, which nobody changes: it is looked into once.
    key = tuple(map(id, shared))
    if any(one is not other for one, other in itertools.zip_longest(_looked_into.get(key, ()), shared)):
        _check_shared(known)
        if len(_looked_into) > _MOST_LOOKED_INTO:
            _looked_into.clear()
        _looked_into[key] = shared


def _check_shared(known: Mapping[str, Any]) -> None:
    check_fields(RunRecord, {name: known[name] for name in _SHARED if name in known})
    config = known.get("config", {})
    # Of a training function of the user's own, the fields that it shares with ours alone.
    ours = {
        name: config[name] for name in (RUNTIME_FIELDS if "train" in config else _names(TrialConfig)) if name in config
    }
    if ours.get("world_size", 1) is None:
        raise ValueError("config.world_size is null and not int")
    check_fields(TrialConfig, {name: value for name, value in ours.items() if value is not None})
    check_at_least(1, ours, ("world_size", "batch_per_rank", "accum_steps", "threads_per_rank"))
    check_facts("machine", known.get("machine", {}), texts=("host", "cpu", "os"), lists=("gpus",))
    check_facts("versions", known.get("versions", {}))
    check_facts("git", known.get("git", {}))


_SHARED = frozenset(("config", "machine", "versions", "git"))
_ANY_NUMBER = frozenset(
    (
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
        "validation_loss",
        "validation_accuracy",
        "images_per_s",
        "epoch_s",
        "train_s",
        "eval_s",
        "parameters",
        "train_samples",
        "test_samples",
        "validation_samples",
    )
)
_MOST_LOOKED_INTO = 10_000
_looked_into: dict[tuple[int, ...], list[Any]] = {}
"""Objects that were looked into, by their addresses; kept, so that no other has the address of one."""


@functools.cache
def _numbers(cls: type) -> tuple[tuple[str, int | float], ...]:
    """The fields that are always numbers, and their defaults."""
    return tuple((item.name, item.default) for item in fields(cls) if isinstance(item.default, int | float))


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(cls))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Outcome):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        # A lone surrogate, of a file's name say, is nothing that a file of JSON can hold.
        return value.encode(errors="backslashreplace").decode()
    return value
