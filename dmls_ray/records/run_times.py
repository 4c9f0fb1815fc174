"""When a run began and ended, and the steps of its epochs, for tools that draw runs over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dmls_ray.records.model import EpochRecord, RunRecord


def started_at(record: RunRecord) -> float:
    """Start of a run in seconds since 1970."""
    moment = datetime.fromisoformat(record.started_at or "1970-01-01")
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def ended_at(record: RunRecord) -> float:
    """End of a run in seconds since 1970; without its duration, the end of its last epoch."""
    seconds = [epoch.metrics.get("ended_s", 0.0) for epoch in record.epochs]
    return started_at(record) + record.metrics.get("total_s", max(seconds, default=0.0))


def rising_steps(epochs: Sequence[EpochRecord]) -> list[int]:
    """The step of each epoch. Where epochs are counted again it goes on, since these tools need rising steps."""
    steps = [0]
    for epoch in epochs:
        steps.append(max(epoch.epoch, steps[-1] + 1))
    return steps[1:]
