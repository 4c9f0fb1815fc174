"""What is lost, twice or wrong in the records of a sweep that was disturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome

Key = tuple[int, int, int]
"""Batch, world size and repeat of a run."""
Measured = list[tuple[float | None, ...]]
"""Losses and accuracies of each epoch."""

METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


@dataclass(kw_only=True)
class Counts:
    """Runs of one sweep, counted."""

    ok: int = 0
    explained: int = 0
    """Runs with another outcome that a fault explains, as oom after a lack of memory."""
    lost: int = 0
    """Runs without a row, and rows that were printed and are not there."""
    twice: int = 0
    """Rows of a run that had an ok row already, of the same lane and session."""
    wrong: int = 0
    """Rows that differ from those of the undisturbed sweep in a bit of a loss or of an accuracy."""
    retried: int = 0
    """Runs that were started more than once."""
    resumed: int = 0
    """Runs that continued from a checkpoint."""
    examples: list[str] = field(default_factory=list)
    """Of what is bad."""

    @property
    def is_bad(self) -> bool:
        """Whether a row is lost, twice or wrong."""
        return bool(self.lost or self.twice or self.wrong)


def key_of(record: RunRecord) -> Key:
    """What identifies a run at every place."""
    return record.config["batch_per_rank"], record.config["world_size"], record.repeat


def measured(record: RunRecord) -> Measured:
    """What an undisturbed run must give as well."""
    return [tuple(epoch.metrics.get(name) for name in METRICS) for epoch in record.epochs]


def compare(
    lines: Sequence[bytes],
    planned: Collection[Key],
    expected: Mapping[Key, Measured],
    *,
    explained: Collection[str] = (),
    reported: Collection[str] = (),
) -> Counts:
    """Count.

    Args:
        lines: the records of the sweep, in the order of their file.
        planned: its runs.
        expected: the results of the undisturbed sweep.
        explained: outcomes other than ok that its faults explain.
        reported: `batch_per_rank=8 ...` of each run that was printed as ok. A printed row has been kept.
    """
    records = [RunRecord.from_json(line) for line in lines]
    oks: dict[Key, list[RunRecord]] = {}
    for record in records:
        if record.outcome is Outcome.OK:
            oks.setdefault(key_of(record), []).append(record)
    counts = Counts(ok=len(oks))
    last = {key_of(record): record for record in records}
    for key in planned:
        if key in oks:
            continue
        if key in last and last[key].outcome in explained:
            counts.explained += 1
        else:
            counts.lost += 1
            counts.examples.append(f"{key} is lost: {last[key].outcome if key in last else 'no row'}")
    for key, found in oks.items():
        # The block of a machine that left is measured again, as a whole, on another lane.
        again = len(found) - len({(record.session, record.lane) for record in found})
        counts.twice += again
        counts.wrong += sum(measured(record) != expected[key] for record in found)
        counts.retried += found[-1].attempts > 1
        counts.resumed += found[-1].metrics.get("resumed_epoch") is not None
        if again or any(measured(record) != expected[key] for record in found):
            counts.examples.append(f"{key}: {len(found)} rows, sessions {[record.session for record in found]}")
    gone = len(Counter(reported).keys()) - len(oks)
    if gone > 0:
        counts.lost += gone
        counts.examples.append(f"{gone} more runs were printed as ok than there are ok rows")
    return counts
