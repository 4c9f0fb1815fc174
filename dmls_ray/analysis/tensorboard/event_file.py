"""TensorBoard's event files: what is written into one, as bytes.

Made of the protobuf messages that the tensorboard package itself reads, so without TensorFlow and without a thread.
That package is imported when the first file is made, which takes a fifth of a second.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIVE = ".live"
"""Ends the name of a file that is written while its run goes on."""

_OURS = re.compile(r"events\.out\.tfevents\.\d+\.[0-9a-f]{12}(\.live)?")
"""Files that are written here; none other is ever removed."""

_END = b"_hparams_/session_end_info"
"""Stands in the last message of a run that has ended."""

_LAST = 400
"""Bytes of a file that hold its last message."""


@dataclass
class Column:
    """What is known of a hyperparameter's values: a range of numbers, and whatever else there is."""

    low: float = math.inf
    high: float = -math.inf
    others: list[str | bool] = field(default_factory=list)

    def add(self, value: Any) -> bool:
        """Take in a value; returns whether that says anything new of the column."""
        if isinstance(value, str | bool):
            if value in self.others:
                return False
            self.others.append(value)
            return True
        if self.low <= value <= self.high:
            return False
        self.low, self.high = min(self.low, value), max(self.high, value)
        return True

    @property
    def differs(self) -> bool:
        """Whether runs have different values."""
        return len(self.others) + (self.low <= self.high) > 1 or self.low < self.high


def load() -> None:
    """Import what the first file needs, while there is time for it."""
    import tensorboard.plugins.hparams.metadata
    import tensorboard.summary.writer.record_writer  # noqa: F401


def encoded(messages: Iterable[Any]) -> bytes:
    """Messages as a file has them."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    writer = RecordWriter(file)
    for message in messages:
        writer.write(message.SerializeToString())
    return file.getvalue()


def beginning(wall_time: float) -> list[Any]:
    """What a file begins with: what was told of this run before, by another file, counts no more."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    return [
        Event(wall_time=wall_time, file_version="brain.Event:2"),
        Event(wall_time=wall_time, session_log=SessionLog(status=SessionLog.START)),
    ]


def scalars(wall_time: float, step: int, values: Mapping[str, float]) -> list[Any]:
    """The numbers of a step by their names; no message where there are none."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    told = [Summary.Value(tag=clean(tag), simple_value=value) for tag, value in values.items()]
    return [Event(wall_time=wall_time, step=step, summary=Summary(value=told))] if told else []


def session_start(wall_time: float, values: Mapping[str, str | bool | float]) -> Any:
    """A run with its hyperparameters."""
    from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG
    from tensorboard.plugins.hparams.plugin_data_pb2 import SessionStartInfo

    start = SessionStartInfo(start_time_secs=wall_time)
    for name, value in values.items():
        kind = "bool_value" if isinstance(value, bool) else "string_value" if isinstance(value, str) else "number_value"
        setattr(start.hparams[clean(name)], kind, value)
    return _of_hparams(wall_time, SESSION_START_INFO_TAG, session_start_info=start)


def session_end(wall_time: float, *, ok: bool) -> Any:
    """A run's end."""
    from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
    from tensorboard.plugins.hparams.metadata import SESSION_END_INFO_TAG
    from tensorboard.plugins.hparams.plugin_data_pb2 import SessionEndInfo

    end = SessionEndInfo(status=STATUS_SUCCESS if ok else STATUS_FAILURE, end_time_secs=wall_time)
    return _of_hparams(wall_time, SESSION_END_INFO_TAG, session_end_info=end)


def experiment(columns: Mapping[str, Column], metrics: Mapping[str, str]) -> Any:
    """The table of all runs: its hyperparameters with their domains, and its metrics (tag -> what to call it)."""
    from tensorboard.plugins.hparams.api_pb2 import Experiment, MetricInfo, MetricName
    from tensorboard.plugins.hparams.metadata import EXPERIMENT_TAG

    told = Experiment(
        hparam_infos=[_hparam(name, column) for name, column in columns.items()],
        metric_infos=[
            MetricInfo(name=MetricName(tag=clean(tag)), display_name=clean(name)) for tag, name in metrics.items()
        ],
    )
    return _of_hparams(0.0, EXPERIMENT_TAG, experiment=told)


def file_name(wall_time: float, key: str) -> str:
    """What a file is called that begins at this time.

    Args:
        wall_time: seconds since 1970.
        key: 12 hex digits; another one where a file would begin with something else.
    """
    return f"events.out.tfevents.{max(int(wall_time), 0):010}.{key}"


def add(path: Path, messages: Sequence[Any]) -> None:
    """Add messages to a file, in one piece and at once."""
    if not messages:
        return
    text = encoded(messages)
    try:
        file = open(path, "ab", opener=_no_link)  # noqa: SIM115 - closed below
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "ab", opener=_no_link)  # noqa: SIM115 - likewise
    with file:
        file.write(text)


def _no_link(path: str, flags: int) -> int:
    """Open a file, but not one that a link of its name leads to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def has_ended(folder: Path, name: str) -> bool:
    """Whether a file of this name, or one that was written live, is there to its end."""
    for path in (folder / name, folder / f"{name}{LIVE}"):
        try:
            with open(path, "rb") as file:
                file.seek(-min(path.stat().st_size, _LAST), os.SEEK_END)
                if _END in file.read():
                    return True
        except FileNotFoundError:
            continue
    return False


def folders(folder: Path) -> list[Path]:
    """Those in a folder; links to others are none of ours."""
    return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()] if folder.exists() else []


def clear(folder: Path, *, only_if_empty: bool = False) -> None:
    """Remove what was written here of a run, and its folder unless there is something else in it.

    A link in its place is removed, and what it leads to stays: it may lead anywhere.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    ranks = []
    for path in folder.glob("rank-*"):
        if path.is_symlink():
            path.unlink()
        else:
            ranks.append(path)
    for path in [] if only_if_empty else [item for each in (folder, *ranks) for item in each.glob("events.*")]:
        if _OURS.fullmatch(path.name):
            path.unlink()
    for each in (*ranks, folder):
        with suppress(OSError):
            each.rmdir()


def clean(text: str) -> str:
    """A text as protobuf can hold it, without the lone surrogates of a file's name, say."""
    return text.encode(errors="replace").decode()


def _hparam(name: str, column: Column) -> Any:
    from tensorboard.plugins.hparams import api_pb2

    info = api_pb2.HParamInfo(name=clean(name), type=api_pb2.DATA_TYPE_STRING)
    has_numbers = column.low <= column.high
    if has_numbers and not column.others:
        # As a range, even where there are few: a list would leave out what comes later.
        info.type = api_pb2.DATA_TYPE_FLOAT64
        info.domain_interval.min_value, info.domain_interval.max_value = column.low, column.high
    elif not has_numbers:
        if all(isinstance(value, bool) for value in column.others):
            info.type = api_pb2.DATA_TYPE_BOOL
        info.domain_discrete.extend(sorted(column.others, key=str))
    if "differs" in info.DESCRIPTOR.fields_by_name:  # which older versions do not have
        info.differs = column.differs
    return info


def _of_hparams(wall_time: float, tag: str, **data: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    told = metadata.create_summary_metadata(HParamsPluginData(**data))
    value = Summary.Value(tag=tag, metadata=told, tensor=metadata.NULL_TENSOR)
    return Event(wall_time=wall_time, summary=Summary(value=[value]))
