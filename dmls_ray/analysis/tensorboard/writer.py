"""The event files of a sweep for TensorBoard: `tensorboard --logdir results/batch_size/tensorboard`.

    tensorboard/
        world_size=2 batch_per_rank=16 repeat=0/             a run: its epochs, its result, its hyperparameters
            rank-0/, rank-1/                                 the epochs of each rank
        world_size=2 batch_per_rank=16 repeat=1 attempt=2/
        experiment-3f2a9c1d04be/                             the columns of the HParams table

The repeats of a trial are one row of the HParams table, with the means of their metrics.

Each run is written once: epoch by epoch while it goes on, or at once from its record. A running TensorBoard reads what
is appended to a file and finds new folders, but may miss a file that is replaced. For that reason a finished run is
left alone when a sweep is resumed, and new columns get a folder with a new name.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from dmls_ray.analysis.results import Results, config_factors, factors_of
from dmls_ray.analysis.table.build import factor_names
from dmls_ray.analysis.tensorboard.folder import (
    FOLDER,
    append,
    begin,
    clear,
    file_name,
    is_finished,
    mark_finished,
    subfolders,
)
from dmls_ray.analysis.tensorboard.messages import (
    RUN_TAGS,
    Domain,
    encode,
    ended,
    epoch_messages,
    epoch_values,
    experiment,
    file_start,
    next_step,
    run_tag,
    run_values,
    scalars,
    session_end,
    session_start,
    started,
    text,
    valid_text,
)
from dmls_ray.config.grid import BASELINE
from dmls_ray.config.hashing import digest_of_changes
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.names import OF_A_FIELD, RESERVED, distinct_names
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.registry import workload_of

_EXPERIMENT = "experiment-"

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


@dataclass
class _RunningRun:
    path: Path
    mode: str
    epochs: int = 0
    step: int = 0


class TensorBoardWriter:
    """Writer of the event files of one sweep.

    Args:
        folder: results/<sweep>/tensorboard.
        varied: as in `write_tensorboard`.
        changed: as in `write_tensorboard`.
        planned: configurations that the sweep is going to run.
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
        self._domains: dict[str, Domain] = {}
        self._metrics: set[str] = set()
        self._experiment: Path | None = None
        self._run_ids: dict[str, str] = {}  # by folder name
        self._running: dict[str, _RunningRun] = {}  # by run_id

    def sync(self, records: Iterable[RunRecord], *, rewrite: bool = False) -> None:
        """Write the runs that have no files yet, and remove the files of all other runs.

        Args:
            records: the runs that stay.
            rewrite: write all runs again.

        Raises:
            OSError: the folder cannot be written.
        """
        if self.folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a link; remove it", str(self.folder))
        started_runs = (record for record in records if record.outcome is not Outcome.SKIPPED)
        shown = sorted(started_runs, key=attrgetter("repeat", "order"))
        trials = {record.trial_id: record for record in shown}.values()
        self._fields = factor_names([*self._planned, *map(factors_of, trials)], self._varied)
        for factors in self._planned:
            self._add_to_domains(self._hyperparameters(factors))

        files = {self._path(record): record for record in shown}
        names = {path.parent.name for path in files}
        for folder in subfolders(self.folder):
            if rewrite or (folder.name not in names and not folder.name.startswith(_EXPERIMENT)):
                clear(folder)
        for path, record in files.items():
            if rewrite or not is_finished(path):
                self._write(path, record)
            self._add_columns(record)
        self._write_experiment()

    def run_started(self, record: RunRecord) -> None:
        """Begin the files of a run, whose record has no results yet."""
        self._discard(record.run_id)  # an earlier attempt, which lost a rank
        path = self._path(record)
        begin(path.parent)
        append(path, encode(self._start(record)))
        self._running[record.run_id] = _RunningRun(path, record.mode)

    def epoch_ended(self, run_id: str, epoch: EpochRecord) -> None:
        """Append an epoch of a run."""
        run = self._running[run_id]
        run.epochs += 1
        run.step = next_step(run.step, epoch)
        append(run.path, encode(scalars(time.time(), run.step, epoch_values(epoch, run.mode))))

    def run_finished(self, record: RunRecord) -> None:
        """Append the result of a run."""
        run = self._running.get(record.run_id)
        if record.outcome is Outcome.SKIPPED:
            self._discard(record.run_id)
            return

        path = self._path(record)
        if run is not None and run.path == path and run.epochs == len(record.epochs):
            self._write_ranks(path, record)
            append(path, encode(self._result(record, run.step)))
            mark_finished(path.parent)
        else:
            # A run that resumed from a checkpoint has reported its last epochs only.
            self._discard(record.run_id)
            self._write(path.with_name(f"{path.name}.rewritten"), record)
        self._running.pop(record.run_id, None)
        self._add_columns(record)
        self._write_experiment()

    def close(self) -> None:
        """Remove the files of runs that have not finished; they have no record."""
        for run_id in tuple(self._running):
            self._discard(run_id)

    def _discard(self, run_id: str) -> None:
        run = self._running.pop(run_id, None)
        if run is not None:
            clear(run.path.parent)

    def _write(self, path: Path, record: RunRecord) -> None:
        """Write all files of a run from its record."""
        begin(path.parent)
        self._write_ranks(path, record)
        epochs, step = epoch_messages(record, record.epochs)
        append(path, encode([*self._start(record), *epochs, *self._result(record, step)]))
        mark_finished(path.parent)

    def _write_ranks(self, path: Path, record: RunRecord) -> None:
        for rank in record.ranks:
            messages, step = epoch_messages(record, rank.epochs)
            result = scalars(ended(record), step, run_values(rank, record.mode))
            file = path.parent / f"rank-{rank.rank}" / path.name
            append(file, encode([*file_start(started(record)), *messages, *result]))

    def _start(self, record: RunRecord) -> list[Any]:
        start_time = started(record)
        about = f"run {record.run_id}: repeat {record.repeat}, seed {record.seed}"
        session = session_start(start_time, self._hyperparameters(factors_of(record)), record.trial_id)
        return [*file_start(start_time), session, text(start_time, "Run", about)]

    def _result(self, record: RunRecord, step: int) -> list[Any]:
        end_time, values = ended(record), run_values(record, record.mode)
        return [*scalars(end_time, step, values), session_end(end_time, ok=record.outcome is Outcome.OK)]

    def _path(self, record: RunRecord) -> Path:
        """The event file of a run."""
        name = run_name(record, self._varied, self._changed)
        if self._run_ids.setdefault(name, record.run_id) != record.run_id:
            name = f"{name} {record.trial_id}"
        hyperparameters = self._hyperparameters(factors_of(record))
        key = digest_of_changes(
            {"begins with": [record.run_id, record.session, record.started_at, hyperparameters]}, {}
        )
        return self.folder / name / file_name(started(record), key)

    def _hyperparameters(self, factors: Mapping[str, Any]) -> dict[str, Any]:
        """The hyperparameters of a configuration in the HParams table."""
        heads = self._heads()
        values = {heads[name]: factors[name] for name in self._fields if factors.get(name) is not None}
        return {
            name: value if isinstance(value, bool | int | float) else valid_text(str(value))
            for name, value in values.items()
        }

    def _heads(self) -> dict[str, str]:
        """The heading of each field, as in runs.csv."""
        return distinct_names(self._fields, RESERVED, OF_A_FIELD)

    def _add_columns(self, record: RunRecord) -> None:
        """Take a run into the columns of the HParams table."""
        self._metrics |= run_values(record, record.mode).keys()
        self._add_to_domains(self._hyperparameters(factors_of(record)))

    def _add_to_domains(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._domains.setdefault(name, Domain()).add(value)

    def _write_experiment(self) -> None:
        """Write the columns of the HParams table if they changed; before a run has finished, no metric is known."""
        if not self._metrics:
            return
        order = self._heads().values()
        domains = {name: self._domains[name] for name in order if name in self._domains}
        built_in = [run_tag(tag) for tag in RUN_TAGS.values()]
        metrics = [*(tag for tag in built_in if tag in self._metrics), *sorted(self._metrics.difference(built_in))]

        key = digest_of_changes(
            {"columns": {name: repr(domain) for name, domain in domains.items()}, "metrics": metrics}, {}
        )
        path = self.folder / f"{_EXPERIMENT}{key}" / file_name(0.0, key)
        if path == self._experiment:
            return
        if not is_finished(path):
            clear(path.parent)
            columns = experiment(domains, {tag: tag.removeprefix(run_tag("")) for tag in metrics})
            append(path, encode([*file_start(0.0), columns]))
        for folder in subfolders(self.folder):
            if folder.name.startswith(_EXPERIMENT) and folder != path.parent:
                clear(folder)
        self._experiment = path


def run_name(record: RunRecord, varied: Sequence[str], changed: Collection[str] = ()) -> str:
    """Name of the folder of a run: its varied fields, its repeat, and its attempt unless it is the first."""
    factors = factors_of(record)
    defaults = {name: spec.default for name, spec in workload_of(record.config).specs().items()}
    fields = [name for name in varied if factors.get(name) is not None]
    words = [f"{name}={factors[name]}" for name in fields if name not in changed or factors[name] != defaults.get(name)]
    if changed and not any(factors.get(name) != defaults.get(name) for name in changed):
        words = [BASELINE, *words]
    words.append(f"repeat={record.repeat}")
    if record.attempts > 1:
        words.append(f"attempt={record.attempts}")

    text = re.sub(r"[^\w=.,:+@ -]", "-", " ".join(words))
    short = text.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
    return text if short == text else f"{short} {record.run_id}"
