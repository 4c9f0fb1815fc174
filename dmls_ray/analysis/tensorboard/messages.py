"""What TensorBoard shows of a run, as messages: scalars by tag, step and time, and the HParams table.

The messages are the protobuf classes of the tensorboard package, which needs no TensorFlow. Importing them takes 0.2 s.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from dmls_ray.analysis.memory import MEMORY
from dmls_ray.analysis.metrics import is_time, label_of
from dmls_ray.records.epoch_and_rank import EpochRecord, RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.names import OF_A_METRIC, distinct_names
from dmls_ray.records.training_metrics import BY_NAME, LEARNED

EPOCH_TAGS = {**{name: name.replace("_", " ").capitalize() for name in LEARNED}, "images_per_s": "Images per second"}
"""Metric of an epoch -> its tag."""

RUN_TAGS = {
    **EPOCH_TAGS,
    "total_s": "Seconds",
    **{name: label_of(name)[:1].upper() + label_of(name)[1:] for name in MEMORY},
}
"""Metric of a run -> its tag after `Run/`. With early stopping these are the values of the best epoch."""


@dataclass
class Domain:
    """The values of one hyperparameter: a range of numbers, and all values that are not numbers."""

    low: float = math.inf
    high: float = -math.inf
    others: list[str | bool] = field(default_factory=list)

    def add(self, value: Any) -> None:
        """Add a value."""
        if not isinstance(value, str | bool):
            self.low, self.high = min(self.low, value), max(self.high, value)
        elif value not in self.others:
            self.others.append(value)


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


def text(wall_time: float, tag: str, content: str) -> Any:
    """A text that TensorBoard shows under Text."""
    return Event(wall_time=wall_time, summary=text_pb(tag, valid_text(content)))


def session_start(wall_time: float, values: Mapping[str, str | bool | float], group: str) -> Any:
    """The start of a run with its hyperparameters.

    Args:
        wall_time: in seconds since 1970.
        values: the hyperparameters.
        group: name that the repeats of a trial share: TensorBoard shows them as one row, with the means of their
            metrics.
    """
    start = SessionStartInfo(start_time_secs=wall_time, group_name=group)
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
    has_numbers = domain.low <= domain.high
    if has_numbers and not domain.others:
        # An interval, since TensorBoard hides rows whose value is not in a list.
        info.type = api_pb2.DATA_TYPE_FLOAT64
        info.domain_interval.min_value, info.domain_interval.max_value = domain.low, domain.high
    elif not has_numbers:
        if all(isinstance(value, bool) for value in domain.others):
            info.type = api_pb2.DATA_TYPE_BOOL
        info.domain_discrete.extend(sorted(domain.others, key=str))
    if "differs" in info.DESCRIPTOR.fields_by_name:  # missing from older versions of TensorBoard
        info.differs = len(domain.others) + has_numbers > 1 or domain.low < domain.high
    return info


def _hparams_event(wall_time: float, tag: str, **content: Any) -> Any:
    summary_metadata = metadata.create_summary_metadata(HParamsPluginData(**content))
    value = Summary.Value(tag=tag, metadata=summary_metadata, tensor=metadata.NULL_TENSOR)
    return Event(wall_time=wall_time, summary=Summary(value=[value]))


def run_tag(tag: str) -> str:
    """The tag of a value of the whole run."""
    return f"Run/{tag}"


def epoch_values(epoch: EpochRecord, mode: str) -> dict[str, float]:
    """The numbers of an epoch by tag."""
    return _values(epoch.metrics, EPOCH_TAGS, mode)


def run_values(record: RunRecord | RankRecord, mode: str) -> dict[str, float]:
    """The numbers of a run or of one rank by tag."""
    return {run_tag(tag): value for tag, value in _values(record.metrics, RUN_TAGS, mode).items()}


def _values(metrics: Mapping[str, float], tags: Mapping[str, str], mode: str) -> dict[str, float]:
    """Finite numbers by tag; a metric that is none of training has its name as tag."""
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    values = {tags[name]: finite[name] for name in tags if name in finite and (mode == "bench" or not is_time(name))}
    others = [name for name in finite if name not in BY_NAME]
    of_runs = [name for name in others if name.startswith(run_tag(""))]
    named = distinct_names(others, [*tags.values(), *of_runs], OF_A_METRIC)
    return values | {named[name]: finite[name] for name in others}


def epoch_messages(record: RunRecord, epochs: Sequence[EpochRecord]) -> tuple[list[Any], int]:
    """The messages of these epochs and the last step."""
    messages: list[Any] = []
    step = 0
    for wall_time, epoch in zip(_epoch_ends(record, epochs), epochs, strict=True):
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


def _epoch_ends(record: RunRecord, epochs: Sequence[EpochRecord]) -> list[float]:
    """End of each epoch in seconds since 1970."""
    return [started(record) + epoch.metrics.get("ended_s", 0.0) for epoch in epochs]


def ended(record: RunRecord) -> float:
    """End of a run in seconds since 1970."""
    if "total_s" in record.metrics:
        return started(record) + record.metrics["total_s"]
    return [started(record), *_epoch_ends(record, record.epochs)][-1]
