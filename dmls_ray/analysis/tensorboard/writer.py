"""The event files of a sweep for TensorBoard: `tensorboard --logdir results/batch_size/tensorboard`.

    tensorboard/
        world_size=2 batch_per_rank=16 repeat=0/             a run: its epochs, its result, its hyperparameters
            rank-0/, rank-1/                                 the epochs of each rank
        world_size=2 batch_per_rank=16 repeat=1/

The repeats of a trial are one row of the HParams table, with the means of their metrics.

While a run goes on, its epochs are appended to its file, which TensorBoard follows. When the run has finished, what
its record has besides is appended. A run that ends without a record leaves its file until the sweep is resumed: then
the files of all runs are written again.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.metrics import MEMORY_METRICS, is_time, label_of
from dmls_ray.analysis.results import factors_of
from dmls_ray.records.metrics import BY_NAME, LEARNED
from dmls_ray.records.model import EpochRecord, RankRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage.folder import read_sweep
from dmls_ray.util.text import utf8_safe

FOLDER = "tensorboard"
"""Folder of the event files within a results folder."""

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
    """

    def __init__(self, folder: Path, varied: Sequence[str] = ()) -> None:
        self.folder, self._varied = folder, tuple(varied)
        self._run_ids: dict[str, str] = {}  # by folder name

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
            self.write(record)

    def write(self, record: RunRecord) -> None:
        """Write the files of a run that has finished; a skipped run has none."""
        if record.outcome is Outcome.SKIPPED:
            return
        path = self._path(record)
        begun = path.read_bytes() if path.exists() else b""
        content = _content([*_start(record), self._hparams(record), *_scalars(record, record), _session_end(record)])
        # TensorBoard does not notice that a file was replaced.
        if not content.startswith(begun) or not begun:
            _remove_event_files(path.parent)
            begun = b""
        _append(path, content.removeprefix(begun))
        for rank in record.ranks:
            of_rank = path.parent / f"rank-{rank.rank}"
            _remove_event_files(of_rank)
            _append(of_rank / path.name, _content([*_start(record), *_scalars(record, rank)]))

    def write_last_epoch(self, record: RunRecord) -> None:
        """Append the last epoch of a run that goes on; its first epoch begins the file."""
        path = self._path(record)
        events = [_epoch(record, record.epochs[-1], _steps(record)[-1])]
        if len(record.epochs) == 1:
            _remove_event_files(path.parent)
            events = [*_start(record), self._hparams(record), *events]
        _append(path, _content(events))

    def _path(self, record: RunRecord) -> Path:
        """The event file of a run over all ranks."""
        name = run_name(record, self._varied)
        if self._run_ids.setdefault(name, record.run_id) != record.run_id:
            name = f"{name} {record.trial_id}"
        folder = self.folder / name
        if folder.is_symlink():
            folder.unlink()
        return folder / f"events.out.tfevents.{max(int(_started(record)), 0):010}.{record.run_id}.run"

    def _hparams(self, record: RunRecord) -> Event:
        """The varied fields of a run, for the HParams table; the repeats of a trial have one group name."""
        factors = factors_of(record)
        values: dict[str, bool | float | str] = {}
        for name in self._varied:
            value = factors.get(name)
            if isinstance(value, int | float):
                values[utf8_safe(name)] = value
            elif value is not None:
                values[utf8_safe(name)] = utf8_safe(str(value))
        began = _started(record)
        return Event(wall_time=began, summary=hparams_pb(values, trial_id=record.trial_id, start_time_secs=began))


class LiveTensorBoardWriter:
    """`TensorBoardWriter` of a sweep that goes on; after the first error it writes nothing more.

    Args:
        folder: the results folder, with the session in its sweep.json.
        notify: called once with the reason if the event files cannot be written.
    """

    def __init__(self, folder: Path, notify: Callable[[str], object]) -> None:
        question = SweepQuestion.of(read_sweep(folder).get("sessions", []))
        self._writer = TensorBoardWriter(folder / FOLDER, question.varied)
        self._notify, self._is_off = notify, False

    def write_all(self, records: Iterable[RunRecord]) -> None:
        """As `TensorBoardWriter.write_all`, but without errors."""
        self._attempt(lambda: self._writer.write_all(records))

    def write(self, record: RunRecord) -> None:
        """As `TensorBoardWriter.write`, but without errors."""
        self._attempt(lambda: self._writer.write(record))

    def write_last_epoch(self, record: RunRecord) -> None:
        """As `TensorBoardWriter.write_last_epoch`, but without errors."""
        self._attempt(lambda: self._writer.write_last_epoch(record))

    def _attempt(self, write: Callable[[], object]) -> None:
        if self._is_off:
            return
        try:
            write()
        except Exception as error:  # noqa: BLE001 - a sweep does not fail because of TensorBoard
            self._is_off = True
            reason = f"{type(error).__name__}: {error}"
            self._notify(f"{self._writer.folder} cannot be written ({reason}); the sweep goes on without it.")


def _append(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(content)


def _content(events: Iterable[Event]) -> bytes:
    """Events as they stand in a file."""
    file = io.BytesIO()
    writer = RecordWriter(file)
    for event in events:
        writer.write(event.SerializeToString(deterministic=True))
    return file.getvalue()


def _start(record: RunRecord) -> list[Event]:
    """The first events of a file."""
    version = Event(wall_time=_started(record), file_version="brain.Event:2")
    # TensorBoard drops what an earlier file said of this run.
    start = Event(wall_time=_started(record), session_log=SessionLog(status=SessionLog.START))
    return [version, start]


def _scalars(record: RunRecord, part: RunRecord | RankRecord) -> list[Event]:
    """The metrics of each epoch and of the end of a run, or of one of its ranks."""
    steps = _steps(part)
    events = [_epoch(record, epoch, step) for epoch, step in zip(part.epochs, steps, strict=True)]
    result = _summary(record, part.metrics, prefix="Run/")
    return [*events, Event(wall_time=_ended(record), step=max(steps, default=0), summary=result)]


def _steps(part: RunRecord | RankRecord) -> list[int]:
    """The step of each epoch. Where epochs are counted again it goes on, since TensorBoard needs rising steps."""
    steps = [0]
    for epoch in part.epochs:
        steps.append(max(epoch.epoch, steps[-1] + 1))
    return steps[1:]


def _epoch(record: RunRecord, epoch: EpochRecord, step: int) -> Event:
    ended = _started(record) + epoch.metrics.get("ended_s", 0.0)
    return Event(wall_time=ended, step=step, summary=_summary(record, epoch.metrics))


def _summary(record: RunRecord, metrics: Mapping[str, float], prefix: str = "") -> Summary:
    """Finite numbers by tag; a metric that is none of training has its name as tag."""
    values = []
    for name, number in metrics.items():
        has_tag = name in _TAGS or name not in BY_NAME
        is_comparable = record.mode == "bench" or not is_time(name)
        if has_tag and is_comparable and math.isfinite(number):
            tag = utf8_safe(f"{prefix}{_TAGS.get(name, name)}")
            values.append(Summary.Value(tag=tag, simple_value=number))
    return Summary(value=values)


def _session_end(record: RunRecord) -> Event:
    """The end of a run with its status."""
    status = api_pb2.STATUS_SUCCESS if record.outcome is Outcome.OK else api_pb2.STATUS_FAILURE
    end = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=_ended(record)))
    described = metadata.create_summary_metadata(end)
    value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=described, tensor=metadata.NULL_TENSOR)
    return Event(wall_time=_ended(record), summary=Summary(value=[value]))


def run_name(record: RunRecord, varied: Sequence[str]) -> str:
    """Name of the folder of a run: its varied fields and its repeat."""
    factors = factors_of(record)
    words = [f"{name}={factors[name]}" for name in varied if factors.get(name) is not None]
    text = re.sub(r"[^\w=.,:+@ -]", "-", " ".join([*words, f"repeat={record.repeat}"]))
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


def _ended(record: RunRecord) -> float:
    """End of a run in seconds since 1970; without its duration, the end of its last epoch."""
    seconds = [epoch.metrics.get("ended_s", 0.0) for epoch in record.epochs]
    return _started(record) + record.metrics.get("total_s", max(seconds, default=0.0))
