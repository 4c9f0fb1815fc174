"""What TensorBoard shows of a run: its numbers by tag, and the steps and times at which they stand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.tensorboard.event_file import scalars
from dmls_ray.records.model import EpochRecord, RankRecord, RunRecord
from dmls_ray.records.training_metrics import LEARNED

EPOCH_TAGS = {**{name: name.replace("_", " ").capitalize() for name in LEARNED}, "images_per_s": "Images per second"}
"""Metric of an epoch -> its tag."""

RUN_TAGS = {**EPOCH_TAGS, "total_s": "Seconds", "peak_mem_mib": "Peak MiB"}
"""Metric of a run -> its tag after `Run/`. With early stopping these are the values of the best epoch."""


def run_tag(tag: str) -> str:
    """The tag of a value of the whole run."""
    return f"Run/{tag}"


def epoch_values(epoch: EpochRecord, mode: str) -> dict[str, float]:
    """The numbers of an epoch by tag."""
    return _values(epoch, EPOCH_TAGS, epoch.measures, mode)


def run_values(record: RunRecord | RankRecord, measures: Mapping[str, Any], mode: str) -> dict[str, float]:
    """The numbers of a run or of one rank by tag."""
    return {run_tag(tag): value for tag, value in _values(record, RUN_TAGS, measures, mode).items()}


def _values(record: Any, tags: Mapping[str, str], measures: Mapping[str, Any], mode: str) -> dict[str, float]:
    """Finite numbers by tag; metrics of a user function have their own name as tag."""
    names = [name for name in tags if mode == "bench" or not is_time(name)]
    values = {tags[name]: getattr(record, name, None) for name in names}
    values |= {f"measured_{name}" if name in tags.values() else name: value for name, value in measures.items()}
    return {tag: value for tag, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}


def epoch_messages(record: RunRecord, setup_s: float | None, epochs: Sequence[EpochRecord]) -> tuple[list[Any], int]:
    """The messages of these epochs and the last step."""
    messages: list[Any] = []
    step = 0
    for wall_time, epoch in zip(_epoch_ends(record, setup_s, epochs), epochs, strict=True):
        step = next_step(step, epoch)
        messages += scalars(wall_time, step, epoch_values(epoch, record.mode))
    return messages, step


def next_step(step: int, epoch: EpochRecord) -> int:
    """The number of an epoch, or the next step where epochs are counted again: TensorBoard needs rising steps."""
    return max(epoch.epoch, step + 1)


def started(record: RunRecord) -> float:
    """Start of a run in seconds since 1970."""
    if not record.started_at:
        return 0.0
    moment = datetime.fromisoformat(record.started_at)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _epoch_ends(record: RunRecord, setup_s: float | None, epochs: Sequence[EpochRecord]) -> list[float]:
    """Estimated end of each epoch: the record has no times of checkpoints and of waiting."""
    durations = [epoch.warmup_s + epoch.train_s + epoch.eval_s for epoch in epochs]
    return list(itertools.accumulate(durations, initial=started(record) + (setup_s or 0.0)))[1:]


def ended(record: RunRecord) -> float:
    """End of a run in seconds since 1970."""
    if record.total_s is not None:
        return started(record) + record.total_s
    return [started(record), *_epoch_ends(record, record.setup_s, record.epochs)][-1]
