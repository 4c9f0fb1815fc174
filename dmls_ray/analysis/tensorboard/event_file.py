"""The messages of a TensorBoard event file: scalars, the row of a run in the HParams table, the columns of that table.

The messages are the protobuf classes of the tensorboard package, which needs no TensorFlow. Importing them takes 0.2 s.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboard.summary.writer.record_writer import RecordWriter


@dataclass
class Domain:
    """The values of one hyperparameter: a range of numbers, and all values that are not numbers."""

    low: float = math.inf
    high: float = -math.inf
    others: list[str | bool] = field(default_factory=list)

    def add(self, value: Any) -> bool:
        """Add a value; returns whether the domain grew."""
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
    def has_numbers(self) -> bool:
        """Whether any value is a number."""
        return self.low <= self.high

    @property
    def differs(self) -> bool:
        """Whether runs have different values."""
        return len(self.others) + self.has_numbers > 1 or self.low < self.high


def encode(messages: Iterable[Any]) -> bytes:
    """Messages as records of an event file."""
    file = io.BytesIO()
    writer = RecordWriter(file)
    for message in messages:
        writer.write(message.SerializeToString())
    return file.getvalue()


def file_start(wall_time: float) -> list[Any]:
    """The first messages of a file. `SessionLog.START` makes TensorBoard drop what an earlier file said of this run."""
    return [
        Event(wall_time=wall_time, file_version="brain.Event:2"),
        Event(wall_time=wall_time, session_log=SessionLog(status=SessionLog.START)),
    ]


def scalars(wall_time: float, step: int, values: Mapping[str, float]) -> list[Any]:
    """Numbers of one step by tag: one message, or none without numbers."""
    numbers = [Summary.Value(tag=valid_text(tag), simple_value=value) for tag, value in values.items()]
    return [Event(wall_time=wall_time, step=step, summary=Summary(value=numbers))] if numbers else []


def session_start(wall_time: float, values: Mapping[str, str | bool | float]) -> Any:
    """The start of a run with its hyperparameters."""
    start = SessionStartInfo(start_time_secs=wall_time)
    for name, value in values.items():
        kind = "bool_value" if isinstance(value, bool) else "string_value" if isinstance(value, str) else "number_value"
        setattr(start.hparams[valid_text(name)], kind, value)
    return _hparams_event(wall_time, metadata.SESSION_START_INFO_TAG, session_start_info=start)


def session_end(wall_time: float, *, ok: bool) -> Any:
    """The end of a run with its status."""
    end = SessionEndInfo(status=api_pb2.STATUS_SUCCESS if ok else api_pb2.STATUS_FAILURE, end_time_secs=wall_time)
    return _hparams_event(wall_time, metadata.SESSION_END_INFO_TAG, session_end_info=end)


def experiment(domains: Mapping[str, Domain], metrics: Mapping[str, str]) -> Any:
    """The columns of the HParams table.

    Args:
        domains: the values of each hyperparameter, by its name.
        metrics: the heading of each metric, by its tag.
    """
    columns = api_pb2.Experiment(
        hparam_infos=[_hparam_info(name, domain) for name, domain in domains.items()],
        metric_infos=[
            api_pb2.MetricInfo(name=api_pb2.MetricName(tag=valid_text(tag)), display_name=valid_text(heading))
            for tag, heading in metrics.items()
        ],
    )
    return _hparams_event(0.0, metadata.EXPERIMENT_TAG, experiment=columns)


def valid_text(text: str) -> str:
    """Text that protobuf accepts: a lone surrogate, as in the name of a file, becomes a question mark."""
    return text.encode(errors="replace").decode()


def _hparam_info(name: str, domain: Domain) -> Any:
    info = api_pb2.HParamInfo(name=valid_text(name), type=api_pb2.DATA_TYPE_STRING)
    if domain.has_numbers and not domain.others:
        # An interval, since TensorBoard hides rows whose value is not in a list.
        info.type = api_pb2.DATA_TYPE_FLOAT64
        info.domain_interval.min_value, info.domain_interval.max_value = domain.low, domain.high
    elif not domain.has_numbers:
        if all(isinstance(value, bool) for value in domain.others):
            info.type = api_pb2.DATA_TYPE_BOOL
        info.domain_discrete.extend(sorted(domain.others, key=str))
    if "differs" in info.DESCRIPTOR.fields_by_name:  # missing from older versions of TensorBoard
        info.differs = domain.differs
    return info


def _hparams_event(wall_time: float, tag: str, **content: Any) -> Any:
    summary_metadata = metadata.create_summary_metadata(HParamsPluginData(**content))
    value = Summary.Value(tag=tag, metadata=summary_metadata, tensor=metadata.NULL_TENSOR)
    return Event(wall_time=wall_time, summary=Summary(value=[value]))
