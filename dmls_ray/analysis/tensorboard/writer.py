"""The event files of a sweep for TensorBoard: `tensorboard --logdir results/batch_size/tensorboard`.

    tensorboard/
        world_size=2 batch_per_rank=16 repeat=0/             a run: its epochs, its result, its hyperparameters
            rank-0/, rank-1/                                 the epochs of each rank
        world_size=2 batch_per_rank=16 repeat=1 attempt=2/

The repeats of a trial are one row of the HParams table, with the means of their metrics.

While a run goes on, its epochs are appended to its file, and its result and its end when it has finished. A running
TensorBoard reads what is appended. When a sweep is resumed, the files of finished runs are written again: as before.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from dmls_ray.analysis.metrics import MEMORY_METRICS, is_time, label_of
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.trials.trial import Trial, name_of_change
from dmls_ray.records.metrics import BY_NAME, LEARNED
from dmls_ray.records.model import EpochRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.text import utf8_safe

_TAGS = {name: name.replace("_", " ").capitalize() for name in LEARNED}
_TAGS |= {name: label_of(name)[:1].upper() + label_of(name)[1:] for name in MEMORY_METRICS}
_TAGS |= {"images_per_s": "Images per second", "total_s": "Seconds"}
"""Metric of training -> its tag. With early stopping those of a run are the values of the best epoch."""

_WRITTEN_HERE = re.compile(r"events\.out\.tfevents\.\d+\..+\.run")
"""Names of event files of this module; other files are never removed."""
_MAX_NAME_BYTES = 160
"""File systems allow 255."""


class TensorBoardWriter:
    """Writer of the event files of one sweep.

    Args:
        folder: results/<sweep>/tensorboard.
        varied: the fields that name a run.
        changed: fields that were changed one at a time; a field at its default is left out of the name.
    """

    def __init__(self, folder: Path, varied: Sequence[str] = (), changed: Collection[str] = ()) -> None:
        self.folder = folder
        self._varied, self._changed = tuple(varied), frozenset(changed)
        self._run_ids: dict[str, str] = {}  # by folder name
        self._running: dict[str, _Messages] = {}  # by run_id

    def write_all(self, records: Iterable[RunRecord]) -> None:
        """Write the files of these runs afresh, and remove those of all others.

        Raises:
            OSError: the folder cannot be written.
        """
        if self.folder.is_symlink():
            raise OSError(f"{self.folder} is a link; remove it")
        _remove_event_files(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        for record in sorted(records, key=lambda record: (record.repeat, record.order)):
            self.run_finished(record)

    def run_started(self, record: RunRecord) -> None:
        """Begin the files of a run, whose record has no results yet."""
        self._discard(record.run_id)  # an earlier attempt, which lost a rank
        path = self._path(record)
        if path.parent.is_symlink():
            path.parent.unlink()
        _remove_event_files(path.parent)
        messages = _Messages(path, record)
        messages.session_start(self._varied)
        self._running[record.run_id] = messages

    def epoch_ended(self, run_id: str, epoch: EpochRecord) -> None:
        """Append an epoch of a run."""
        self._running[run_id].epoch(epoch)

    def run_finished(self, record: RunRecord) -> None:
        """Complete the files of a run from its record; a skipped run has none."""
        if record.outcome is Outcome.SKIPPED:
            self._discard(record.run_id)
            return
        path = self._path(record)
        messages = self._running.get(record.run_id)
        # A run that went on from a checkpoint has epochs that were not seen here.
        if messages is None or messages.path != path or messages.epochs != record.epochs:
            self.run_started(record)
            for epoch in record.epochs:
                self.epoch_ended(record.run_id, epoch)
        for rank in record.ranks:
            messages = _Messages(path.parent / f"rank-{rank.rank}" / path.name, record)
            for epoch in rank.epochs:
                messages.epoch(epoch)
            messages.result(record, rank.metrics)
            messages.file.close()
        messages = self._running.pop(record.run_id)
        messages.result(record, record.metrics)
        messages.session_end(record)
        messages.file.close()

    def close(self) -> None:
        """Remove the files of runs that have not finished; they have no record."""
        for run_id in tuple(self._running):
            self._discard(run_id)

    def _discard(self, run_id: str) -> None:
        messages = self._running.pop(run_id, None)
        if messages is not None:
            messages.file.close()
            _remove_event_files(messages.path.parent)

    def _path(self, record: RunRecord) -> Path:
        """The event file of a run."""
        name = run_name(record, self._varied, self._changed)
        if self._run_ids.setdefault(name, record.run_id) != record.run_id:
            name = f"{name} {record.trial_id}"
        second = max(int(_started(record)), 0)
        return self.folder / name / f"events.out.tfevents.{second:010}.{record.run_id}.run"


class _Messages:
    """The messages of a run, or of one of its ranks, in a new file."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a buffer, so that TensorBoard sees an epoch as soon as it ends.
        self.path, self.file = path, open(path, "xb", buffering=0)  # noqa: SIM115 - open until the run ends
        self.epochs: list[EpochRecord] = []
        self._record, self._begins, self._step = record, _started(record), 0
        self._writer = RecordWriter(self.file)
        self._write(self._begins, file_version="brain.Event:2")
        # TensorBoard drops what an earlier file said of this run.
        self._write(self._begins, session_log=SessionLog(status=SessionLog.START))

    def session_start(self, varied: Sequence[str]) -> None:
        """The varied fields of a run, for the HParams table; the repeats of a trial have one group name."""
        factors = factors_of(self._record)
        values: dict[str, bool | float | str] = {}
        for name in varied:
            value = factors.get(name)
            if isinstance(value, int | float):
                values[utf8_safe(name)] = value
            elif value is not None:
                values[utf8_safe(name)] = utf8_safe(str(value))
        summary = hparams_pb(values, trial_id=self._record.trial_id, start_time_secs=self._begins)
        self._write(self._begins, summary=summary)

    def session_end(self, record: RunRecord) -> None:
        """The end of a run with its status."""
        status = api_pb2.STATUS_SUCCESS if record.outcome is Outcome.OK else api_pb2.STATUS_FAILURE
        end = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=self._end_of(record)))
        described = metadata.create_summary_metadata(end)
        value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=described, tensor=metadata.NULL_TENSOR)
        self._write(self._end_of(record), summary=Summary(value=[value]))

    def epoch(self, epoch: EpochRecord) -> None:
        """The metrics of an epoch; where epochs are counted again, the step goes on: TensorBoard needs rising steps."""
        self.epochs.append(epoch)
        self._step = max(epoch.epoch, self._step + 1)
        self._scalars(self._begins + epoch.metrics.get("ended_s", 0.0), epoch.metrics)

    def result(self, record: RunRecord, metrics: Mapping[str, float]) -> None:
        """The metrics of the run, or of a rank."""
        self._scalars(self._end_of(record), metrics, prefix="Run/")

    def _end_of(self, record: RunRecord) -> float:
        seconds = [epoch.metrics.get("ended_s", 0.0) for epoch in record.epochs]
        return self._begins + record.metrics.get("total_s", max(seconds, default=0.0))

    def _scalars(self, wall_time: float, metrics: Mapping[str, float], prefix: str = "") -> None:
        """Finite numbers by tag; a metric that is none of training has its name as tag."""
        values = []
        for name, number in metrics.items():
            has_tag = name in _TAGS or name not in BY_NAME
            is_comparable = self._record.mode == "bench" or not is_time(name)
            if has_tag and is_comparable and math.isfinite(number):
                tag = utf8_safe(f"{prefix}{_TAGS.get(name, name)}")
                values.append(Summary.Value(tag=tag, simple_value=number))
        if values:
            self._write(wall_time, step=self._step, summary=Summary(value=values))

    def _write(self, wall_time: float, **content: object) -> None:
        """Write a message, which is in the file when this returns."""
        event = Event(wall_time=wall_time, **content)
        self._writer.write(event.SerializeToString(deterministic=True))


def run_name(record: RunRecord, varied: Sequence[str], changed: Collection[str] = ()) -> str:
    """Name of the folder of a run: its varied fields, its repeat, and its attempt unless it is the first."""
    factors = factors_of(record)
    words = []
    if changed:
        words.append(name_of_change(Trial(record.trial_id, factors, [record]), changed))
    for name in varied:
        if name not in changed and factors.get(name) is not None:
            words.append(f"{name}={factors[name]}")
    words.append(f"repeat={record.repeat}")
    if record.attempts > 1:
        words.append(f"attempt={record.attempts}")
    text = re.sub(r"[^\w=.,:+@ -]", "-", " ".join(words))
    short = text.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
    return text if short == text else f"{short} {record.run_id}"


def _remove_event_files(folder: Path) -> None:
    """Remove the event files in a folder, and the folders that are empty then. No symbolic link is followed."""
    if folder.is_symlink():
        return
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            if _WRITTEN_HERE.fullmatch(name):
                Path(parent, name).unlink()
        with suppress(OSError):  # the folder has other files
            os.rmdir(parent)


def _started(record: RunRecord) -> float:
    """Start of a run in seconds since 1970."""
    moment = datetime.fromisoformat(record.started_at or "1970-01-01")
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
