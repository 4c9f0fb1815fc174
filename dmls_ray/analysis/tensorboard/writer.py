"""A sweep as TensorBoard shows it: `tensorboard --logdir results/batch_size/tensorboard`.

    tensorboard/
        world_size=2 batch_per_rank=16 repeat=0/             a run: its epochs, its end, its row of the HParams table
            rank-0/, rank-1/                                 the same epochs over a rank's own samples
        world_size=2 batch_per_rank=16 repeat=1 attempt=2/
        experiment-3f2a9c1d04be/                             the columns of the HParams table

It is made from the records, and while runs go on from what they tell; a run that has ended looks the same either way,
but for the clock times of its epochs. A TensorBoard that is running takes in what is added to a file, and folders that
come and go, but not always a file or a value of the HParams table that is replaced. So files grow and are left alone
otherwise, and what has changed has another folder's name.
"""

from __future__ import annotations

import errno
import itertools
import math
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from dmls_ray.analysis.metrics import TIMES
from dmls_ray.analysis.results import RESERVED, Results, config_factors, factors_of
from dmls_ray.analysis.table.build import factor_names
from dmls_ray.analysis.tensorboard import event_file
from dmls_ray.config.hashing import digest
from dmls_ray.records.aggregate import METRICS
from dmls_ray.records.model import EpochRecord, RankRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.classification.config import DEFAULTS

FOLDER = "tensorboard"
"""Within a results folder."""

EPOCH_TAGS = {**{name: name.replace("_", " ").capitalize() for name in METRICS}, "images_per_s": "Images per second"}
"""What the numbers of an epoch are called: Train loss, Train accuracy, Test loss, ..."""

RUN_TAGS = {**EPOCH_TAGS, "total_s": "Seconds", "peak_mem_mib": "Peak MiB"}
"""What those of a whole run are called, after `Run/`: they are its row of the table, with early stopping those of the
best epoch, say."""

_OF_A_RANK = frozenset(("epoch", "train_s", "warmup_s", "eval_s", *METRICS))
"""What a rank tells of an epoch."""

_EXPERIMENT = "experiment-"

_LONGEST = 160
"""Bytes of a folder's name; file systems have room for 255."""


def write_tensorboard(results: Results, varied: Sequence[str], changed: Collection[str] = ()) -> Path:
    """Bring the folder that TensorBoard shows up to date with all runs of a results folder.

    Runs that are there already are left as they are, and what stands for no run is removed. A run that was skipped has
    nothing to show.

    Args:
        results: all runs of the folder.
        varied: the fields that name a run.
        changed: those among them that were changed one at a time: where one is at its default, the name leaves it out.

    Returns:
        The folder.

    Raises:
        OSError: it cannot be written.
    """
    board = Board(results.folder / FOLDER, varied, changed)
    board.match(results.records)
    return board.folder


class Board:
    """The folder that TensorBoard shows.

    Args:
        folder: where it is.
        varied: as of `write_tensorboard`.
        changed: likewise.
        planned: configurations that are to be run.
    """

    def __init__(
        self,
        folder: Path,
        varied: Sequence[str] = (),
        changed: Collection[str] = (),
        *,
        planned: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self.folder = folder
        self._varied, self._changed = tuple(varied), frozenset(changed)
        self._planned = [config_factors(config) for config in planned]
        self._fields: tuple[str, ...] = ()
        """Those that are hyperparameters."""
        self._columns: dict[str, event_file.Column] = {}
        self._metrics: set[str] = set()
        """Tags that a run has had."""
        self._names: dict[str, str] = {}
        """Folder's name -> run_id."""
        self._under_way: dict[str, _UnderWay] = {}
        """By run_id."""

    def match(self, records: Iterable[RunRecord]) -> None:
        """Make the folder that of these runs.

        Raises:
            OSError: it cannot be written.
        """
        if self.folder.is_symlink():
            # Folders are made and removed in it, and where it leads to is for whoever wrote the folder to say.
            raise OSError(errno.ELOOP, "it is a link; remove it", str(self.folder))
        shown = sorted((item for item in records if _is_shown(item)), key=attrgetter("repeat", "order"))
        trials = {record.trial_id: record for record in shown}.values()
        self._fields = factor_names([*self._planned, *map(factors_of, trials)], self._varied)
        for factors in self._planned:
            self._take(self._hyperparameters(factors))
        wanted = {self._name(record): record for record in shown}
        for path in event_file.folders(self.folder):
            if path.name not in wanted and not path.name.startswith(_EXPERIMENT):
                event_file.clear(path)
        for name, record in wanted.items():
            if not event_file.has_ended(self.folder / name, self._file(record)):
                self._write(self.folder / name, record)
            self._take_run(record)
        self._write_experiment()

    def start(self, record: RunRecord) -> None:
        """A run has begun; the record is what is known of it so far."""
        self._leave(record.run_id)  # a rank has died, and this is another attempt
        folder = self.folder / self._name(record)
        event_file.clear(folder)
        run = self._under_way[record.run_id] = _UnderWay(folder / f"{self._file(record)}{event_file.LIVE}", record.mode)
        event_file.add(run.path, self._beginning(record))

    def epoch(self, run_id: str, epoch: EpochRecord) -> None:
        """A run has ended an epoch."""
        run = self._under_way[run_id]
        run.epochs += 1
        run.step = _next_step(run.step, epoch)
        event_file.add(run.path, event_file.scalars(time.time(), run.step, _epoch_values(epoch, run.mode)))

    def done(self, record: RunRecord) -> None:
        """A run has ended."""
        run = self._under_way.get(record.run_id)
        if not _is_shown(record):
            self._leave(record.run_id)
            return
        path = self.folder / self._name(record) / self._file(record)
        if (
            run is not None
            and run.path == path.with_name(path.name + event_file.LIVE)
            and run.epochs == len(record.epochs)
        ):
            self._write_ranks(path, record)
            event_file.add(run.path, self._end(record, run.step))
            del self._under_way[record.run_id]
        else:
            # Taken up from a checkpoint, say, it has told the last of its epochs alone.
            self._write(path.parent, record)
            self._leave(record.run_id)
        if self._take_run(record):
            self._write_experiment()

    def end(self) -> None:
        """No run is under way any more; what has not ended is no record's."""
        for run_id in list(self._under_way):
            self._leave(run_id)

    def _leave(self, run_id: str) -> None:
        """Take away what a run has told."""
        run = self._under_way.pop(run_id, None)
        if run is not None:
            run.path.unlink(missing_ok=True)
            event_file.clear(run.path.parent, only_if_empty=True)

    def _write(self, folder: Path, record: RunRecord) -> None:
        """A run as its record has it, in place of what is there."""
        event_file.clear(folder)
        path = folder / self._file(record)
        self._write_ranks(path, record)
        messages, step = self._beginning(record), 0
        for wall_time, epoch in zip(_times(record, record.setup_s, record.epochs), record.epochs, strict=True):
            step = _next_step(step, epoch)
            messages += event_file.scalars(wall_time, step, _epoch_values(epoch, record.mode))
        # The last of its files, and in one piece: its end says that the run is here.
        event_file.add(path, [*messages, *self._end(record, step)])

    def _write_ranks(self, path: Path, record: RunRecord) -> None:
        for rank in record.ranks:
            # What was not finite was written as null, which is no time.
            known = [{name: told[name] for name in _OF_A_RANK if told.get(name) is not None} for told in rank.epochs]
            epochs = [EpochRecord(**told) for told in known]
            messages, step = event_file.beginning(_started(record)), 0
            for wall_time, epoch in zip(_times(record, rank.setup_s, epochs), epochs, strict=True):
                step = _next_step(step, epoch)
                messages += event_file.scalars(wall_time, step, _epoch_values(epoch, record.mode))
            messages += event_file.scalars(_ended(record), step, _run_values(rank, {}, record.mode))
            event_file.add(path.parent / f"rank-{rank.rank}" / path.name, messages)

    def _beginning(self, record: RunRecord) -> list[Any]:
        started = _started(record)
        return [*event_file.beginning(started), event_file.session_start(started, self._values(record))]

    def _end(self, record: RunRecord, step: int) -> list[Any]:
        ended, values = _ended(record), _run_values(record, record.measures, record.mode)
        return [
            *event_file.scalars(ended, step, values),
            event_file.session_end(ended, ok=record.outcome is Outcome.OK),
        ]

    def _name(self, record: RunRecord) -> str:
        """What the run's folder is called; no two runs have the same."""
        name = run_name(record, self._varied, self._changed)
        if self._names.setdefault(name, record.run_id) == record.run_id:
            return name
        return f"{name} {record.trial_id}"

    def _file(self, record: RunRecord) -> str:
        """What the run's files are called; otherwise where they would begin with something else."""
        begins_with = [record.run_id, record.session, record.started_at, self._values(record)]
        return event_file.file_name(_started(record), digest({"begins with": begins_with}))

    def _values(self, record: RunRecord) -> dict[str, Any]:
        """The run's hyperparameters."""
        return {**self._hyperparameters(factors_of(record)), "repeat": record.repeat, "run_seed": record.seed}

    def _hyperparameters(self, factors: Mapping[str, Any]) -> dict[str, Any]:
        return {_column(name): _plain(factors[name]) for name in self._fields if factors.get(name) is not None}

    def _take_run(self, record: RunRecord) -> bool:
        """Returns whether the table of all runs changes with it."""
        before = len(self._metrics)
        self._metrics |= _run_values(record, record.measures, record.mode).keys()
        return self._take(self._values(record)) or len(self._metrics) > before

    def _take(self, values: Mapping[str, Any]) -> bool:
        news = [self._columns.setdefault(name, event_file.Column()).add(value) for name, value in values.items()]
        return any(news)

    def _write_experiment(self) -> None:
        """The table of all runs, once one has ended: before that nobody knows what is measured."""
        if not self._metrics:
            return
        order = [*map(_column, self._fields), "repeat", "run_seed"]
        columns = {name: self._columns[name] for name in order if name in self._columns}
        known = [_of_run(tag) for tag in RUN_TAGS.values()]
        metrics = [*(tag for tag in known if tag in self._metrics), *sorted(self._metrics.difference(known))]
        key = digest({"columns": {name: repr(column) for name, column in columns.items()}, "metrics": metrics})
        folder = self.folder / f"{_EXPERIMENT}{key}"
        path = folder / event_file.file_name(0.0, key)
        if folder.is_symlink() or path.is_symlink() or not path.exists():
            event_file.clear(folder)
            told = event_file.experiment(columns, {tag: tag.removeprefix(_of_run("")) for tag in metrics})
            event_file.add(path, [*event_file.beginning(0.0), told])
        for other in event_file.folders(self.folder):
            if other.name.startswith(_EXPERIMENT) and other != folder:
                event_file.clear(other)


@dataclass
class _UnderWay:
    """A run that has begun and not ended."""

    path: Path
    mode: str
    epochs: int = 0
    """How many it has told."""
    step: int = 0


def run_name(record: RunRecord, varied: Sequence[str], changed: Collection[str] = ()) -> str:
    """A run's folder: its varied fields, its repeat, and its attempt if it is not the first."""
    factors = factors_of(record)
    told = [name for name in varied if factors.get(name) is not None]
    names = [name for name in told if not (name in changed and factors[name] == DEFAULTS.get(name))]
    words = [f"{name}={factors[name]}" for name in names]
    if not words and changed:
        words = ["as it is"]
    words.append(f"repeat={record.repeat}")
    if record.attempts > 1:
        words.append(f"attempt={record.attempts}")
    text = re.sub(r"[^\w=.,:+@ -]", "-", " ".join(words))
    short = text.encode()[:_LONGEST].decode(errors="ignore")
    return text if short == text else f"{short} {record.run_id}"


def _is_shown(record: RunRecord) -> bool:
    return record.outcome is not Outcome.SKIPPED


def _column(name: str) -> str:
    """What a field's column is called, as in runs.csv."""
    return f"config_{name}" if name in RESERVED else name


def _plain(value: Any) -> str | bool | float:
    return value if isinstance(value, bool | int | float) else event_file.clean(str(value))


def _of_run(tag: str) -> str:
    return f"Run/{tag}"


def _epoch_values(epoch: EpochRecord, mode: str) -> dict[str, float]:
    return _numbers(_tagged(epoch, EPOCH_TAGS, epoch.measures, mode))


def _run_values(item: RunRecord | RankRecord, measures: Mapping[str, Any], mode: str) -> dict[str, float]:
    return {_of_run(tag): value for tag, value in _numbers(_tagged(item, RUN_TAGS, measures, mode)).items()}


def _tagged(item: Any, tags: Mapping[str, str], measures: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Values by their tags; those of the user's own by their names."""
    names = [name for name in tags if mode == "bench" or name not in TIMES]
    values = {tags[name]: getattr(item, name, None) for name in names}
    return values | {f"measured_{name}" if name in tags.values() else name: told for name, told in measures.items()}


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Those that are finite numbers: what else there is, a record does not keep, or TensorBoard does not draw."""
    return {tag: value for tag, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}


def _next_step(step: int, epoch: EpochRecord) -> int:
    """An epoch's step: its number, as long as the numbers rise; TensorBoard drops what comes before a lower one."""
    return max(epoch.epoch, step + 1)


def _started(record: RunRecord) -> float:
    """Seconds since 1970."""
    if not record.started_at:
        return 0.0
    moment = datetime.fromisoformat(record.started_at)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _times(record: RunRecord, setup_s: float | None, epochs: Sequence[EpochRecord]) -> list[float]:
    """When the epochs ended, as far as what they took is told: checkpoints and waiting are not."""
    took = [epoch.warmup_s + epoch.train_s + epoch.eval_s for epoch in epochs]
    return list(itertools.accumulate(took, initial=_started(record) + (setup_s or 0.0)))[1:]


def _ended(record: RunRecord) -> float:
    if record.total_s is not None:
        return _started(record) + record.total_s
    return [_started(record), *_times(record, record.setup_s, record.epochs)][-1]
