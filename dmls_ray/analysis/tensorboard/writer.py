"""The event files of a sweep for TensorBoard: `tensorboard --logdir results/batch_size/tensorboard`.

    tensorboard/
        world_size=2 batch_per_rank=16 repeat=0/             a run: its epochs, its result, its hyperparameters
            rank-0/, rank-1/                                 the epochs of each rank
        world_size=2 batch_per_rank=16 repeat=1 attempt=2/

The repeats of a trial are one row of the HParams table, with the means of their metrics.

While a run goes on, its epochs are appended to a file. When it has finished, a file from its record takes the place of
that one. A running TensorBoard reads what is appended, and goes on to files whose names come later. For that reason a
finished run is left alone when a sweep is resumed.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboard.summary.writer.record_writer import RecordWriter

from dmls_ray.analysis.memory import MEMORY
from dmls_ray.analysis.metrics import is_time, label_of
from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.analysis.tensorboard.live import FOLDER
from dmls_ray.config.grid import BASELINE
from dmls_ray.records.epoch_and_rank import EpochRecord, RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import BY_NAME, LEARNED
from dmls_ray.util.text import utf8_safe
from dmls_ray.workloads.registry import workload_of

_EPOCH_TAGS = {**{name: name.replace("_", " ").capitalize() for name in LEARNED}, "images_per_s": "Images per second"}
"""Metric of an epoch -> its tag."""
_RUN_TAGS = {**_EPOCH_TAGS, "total_s": "Seconds"}
"""Metric of a run -> its tag after `Run/`. With early stopping these are the values of the best epoch."""
for _name in MEMORY:
    _RUN_TAGS[_name] = label_of(_name)[:1].upper() + label_of(_name)[1:]

_WRITTEN_HERE = re.compile(r"events\.out\.tfevents\.\d+\..+\.(live|run)")
"""Names of event files of this module; other files are never removed. `live` comes before `run`."""
_MAX_NAME_BYTES = 160
"""File systems allow 255."""


def write_tensorboard(results: Results, varied: Sequence[str], changed: Collection[str] = ()) -> Path:
    """Write the event files of all runs of a results folder afresh, and remove those of runs that it does not have.

    A skipped run has no files.

    Args:
        results: all runs of the folder.
        varied: the fields that name a run.
        changed: fields that were changed one at a time; a field at its default is left out of the name.

    Returns:
        The folder.

    Raises:
        OSError: the folder cannot be written.
    """
    writer = TensorBoardWriter(results.folder / FOLDER, varied, changed)
    writer.sync(results.records, rewrite=True)
    return writer.folder


class TensorBoardWriter:
    """Writer of the event files of one sweep.

    Args:
        folder: results/<sweep>/tensorboard.
        varied: as in `write_tensorboard`.
        changed: as in `write_tensorboard`.
    """

    def __init__(self, folder: Path, varied: Sequence[str] = (), changed: Collection[str] = ()) -> None:
        self.folder = folder
        self._varied, self._changed = tuple(varied), frozenset(changed)
        self._run_ids: dict[str, str] = {}  # by folder name
        self._running: dict[str, _EventFile] = {}  # by run_id

    def sync(self, records: Iterable[RunRecord], *, rewrite: bool = False) -> None:
        """Write the runs that have no files yet, and remove the files of all other runs.

        Args:
            records: the runs that stay.
            rewrite: write all runs again.

        Raises:
            OSError: the folder cannot be written.
        """
        if self.folder.is_symlink():
            raise OSError(f"{self.folder} is a link; remove it")
        shown = [record for record in records if record.outcome is not Outcome.SKIPPED]
        shown.sort(key=lambda record: (record.repeat, record.order))
        paths = {self._path(record, "run"): record for record in shown}
        finished = {path.parent for path in paths if not rewrite and _is_finished(path)}
        self.folder.mkdir(parents=True, exist_ok=True)
        for folder in self.folder.iterdir():
            if folder not in finished:
                _clear(folder)
        for path, record in paths.items():
            if path.parent not in finished:
                self._write(record)

    def run_started(self, record: RunRecord) -> None:
        """Begin the files of a run, whose record has no results yet."""
        self._discard(record.run_id)  # an earlier attempt, which lost a rank
        path = self._path(record, "live")
        _clear(path.parent)
        file = _EventFile(path, _started(record), record.mode)
        file.session_start(record, self._hyperparameters(record))
        self._running[record.run_id] = file

    def epoch_ended(self, run_id: str, epoch: EpochRecord) -> None:
        """Append an epoch of a run."""
        self._running[run_id].epoch(time.time(), epoch)

    def run_finished(self, record: RunRecord) -> None:
        """Write the run from its record."""
        file = self._running.pop(record.run_id, None)
        if record.outcome is not Outcome.SKIPPED:
            self._write(record)
        if file is not None:
            file.close()
            file.path.unlink(missing_ok=True)
            with suppress(OSError):  # the folder has the file of the record
                file.path.parent.rmdir()

    def close(self) -> None:
        """Remove the files of runs that have not finished; they have no record."""
        for run_id in tuple(self._running):
            self._discard(run_id)

    def _discard(self, run_id: str) -> None:
        file = self._running.pop(run_id, None)
        if file is not None:
            file.close()
            _clear(file.path.parent)

    def _write(self, record: RunRecord) -> None:
        """Write all files of a run from its record, that of the run at the end."""
        path = self._path(record, "run")
        _remove_link(path.parent)
        for rank in record.ranks:
            file = _EventFile(path.parent / f"rank-{rank.rank}" / path.name, _started(record), record.mode)
            file.epochs(rank.epochs)
            file.result(_ended(record), rank)
            file.close()

        # The whole file appears at once: a folder that has it is complete.
        unfinished = path.with_name(f".{record.run_id}")
        file = _EventFile(unfinished, _started(record), record.mode)
        file.session_start(record, self._hyperparameters(record))
        file.epochs(record.epochs)
        file.result(_ended(record), record)
        file.session_end(_ended(record), ok=record.outcome is Outcome.OK)
        file.close()
        os.replace(unfinished, path)

    def _path(self, record: RunRecord, kind: str) -> Path:
        """The event file of a run."""
        name = run_name(record, self._varied, self._changed)
        if self._run_ids.setdefault(name, record.run_id) != record.run_id:
            name = f"{name} {record.trial_id}"
        second = max(int(_started(record)), 0)
        return self.folder / name / f"events.out.tfevents.{second:010}.{record.run_id}.{kind}"

    def _hyperparameters(self, record: RunRecord) -> dict[str, Any]:
        """The varied fields of a run, for the HParams table."""
        factors = factors_of(record)
        return {name: factors[name] for name in self._varied if factors.get(name) is not None}


class _EventFile:
    """An event file; each message is in the file when its method returns."""

    def __init__(self, path: Path, begins: float, mode: str) -> None:
        _remove_link(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.path, self.begins, self.mode, self.step = path, begins, mode, 0
        # Without a buffer, so that TensorBoard sees an epoch as soon as it ends.
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - open until the run ends
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=begins, file_version="brain.Event:2"))
        # TensorBoard drops what an earlier file said of this run.
        self._write(Event(wall_time=begins, session_log=SessionLog(status=SessionLog.START)))

    def session_start(self, record: RunRecord, hyperparameters: Mapping[str, Any]) -> None:
        """The start of a run; the repeats of a trial have one group name."""
        start = SessionStartInfo(start_time_secs=self.begins, group_name=record.trial_id)
        for name, value in hyperparameters.items():
            field = start.hparams[utf8_safe(name)]
            if isinstance(value, bool):
                field.bool_value = value
            elif isinstance(value, int | float):
                field.number_value = value
            else:
                field.string_value = utf8_safe(str(value))
        data = HParamsPluginData(session_start_info=start)
        self._hparams(self.begins, metadata.SESSION_START_INFO_TAG, data)

    def session_end(self, wall_time: float, *, ok: bool) -> None:
        """The end of a run with its status."""
        status = api_pb2.STATUS_SUCCESS if ok else api_pb2.STATUS_FAILURE
        end = SessionEndInfo(status=status, end_time_secs=wall_time)
        self._hparams(wall_time, metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end))

    def epochs(self, epochs: Sequence[EpochRecord]) -> None:
        """Epochs of a record."""
        for epoch in epochs:
            self.epoch(self.begins + epoch.metrics.get("ended_s", 0.0), epoch)

    def epoch(self, wall_time: float, epoch: EpochRecord) -> None:
        """The metrics of an epoch; where epochs are counted again, the step goes on: TensorBoard needs rising steps."""
        self.step = max(epoch.epoch, self.step + 1)
        self._scalars(wall_time, epoch.metrics, _EPOCH_TAGS)

    def result(self, wall_time: float, record: RunRecord | RankRecord) -> None:
        """The metrics of a run or of a rank."""
        self._scalars(wall_time, record.metrics, _RUN_TAGS, prefix="Run/")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _scalars(
        self, wall_time: float, metrics: Mapping[str, float], tags: Mapping[str, str], prefix: str = ""
    ) -> None:
        """Finite numbers by tag; a metric that is none of training has its name as tag."""
        numbers = {name: number for name, number in metrics.items() if name not in BY_NAME}
        for name, tag in tags.items():
            if name in metrics and (self.mode == "bench" or not is_time(name)):
                numbers[tag] = metrics[name]
        values = []
        for tag, number in numbers.items():
            if math.isfinite(number):
                values.append(Summary.Value(tag=utf8_safe(f"{prefix}{tag}"), simple_value=number))
        if values:
            self._write(Event(wall_time=wall_time, step=self.step, summary=Summary(value=values)))

    def _hparams(self, wall_time: float, tag: str, data: HParamsPluginData) -> None:
        described = metadata.create_summary_metadata(data)
        value = Summary.Value(tag=tag, metadata=described, tensor=metadata.NULL_TENSOR)
        self._write(Event(wall_time=wall_time, summary=Summary(value=[value])))

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString(deterministic=True))


def run_name(record: RunRecord, varied: Sequence[str], changed: Collection[str] = ()) -> str:
    """Name of the folder of a run: its varied fields, its repeat, and its attempt unless it is the first."""
    factors = factors_of(record)
    defaults = {name: spec.default for name, spec in workload_of(record.config).specs().items()}
    differing = [name for name in changed if factors.get(name) != defaults.get(name)]
    words = []
    if changed and not differing:
        words.append(BASELINE)
    for name in varied:
        if factors.get(name) is not None and (name not in changed or name in differing):
            words.append(f"{name}={factors[name]}")
    words.append(f"repeat={record.repeat}")
    if record.attempts > 1:
        words.append(f"attempt={record.attempts}")

    text = re.sub(r"[^\w=.,:+@ -]", "-", " ".join(words))
    short = text.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
    return text if short == text else f"{short} {record.run_id}"


def _is_finished(path: Path) -> bool:
    """Whether a file is there, and not behind a link."""
    return path.is_file() and not path.is_symlink() and not path.parent.is_symlink()


def _remove_link(path: Path) -> None:
    if path.is_symlink():
        path.unlink()


def _clear(folder: Path) -> None:
    """Remove the event files of a run, and its folder unless it has other files. No symbolic link is followed."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for part in (*folder.glob("rank-*"), folder):
        if part.is_symlink():
            part.unlink()
            continue
        for path in part.iterdir():
            if _WRITTEN_HERE.fullmatch(path.name):
                path.unlink()
        with suppress(OSError):  # the folder has other files
            part.rmdir()


def _started(record: RunRecord) -> float:
    """Start of a run in seconds since 1970."""
    if not record.started_at:
        return 0.0
    moment = datetime.fromisoformat(record.started_at)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _ended(record: RunRecord) -> float:
    """End of a run in seconds since 1970."""
    ends = [epoch.metrics.get("ended_s", 0.0) for epoch in record.epochs]
    return _started(record) + record.metrics.get("total_s", max(ends, default=0.0))
