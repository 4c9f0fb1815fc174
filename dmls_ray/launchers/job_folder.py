"""`JobFolder`: the folder through which the driver and the processes of one launched run exchange messages.

The driver writes the job; rank 0 appends events, one JSON object a line; each rank leaves its result as JSON. Only the
job is a pickle: the driver, which is trusted, writes it into a folder that no other user can enter.
"""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dmls_ray.config.identity import Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import part_of
from dmls_ray.records.run_events import EpochEnded, Progress, RankEvent, RankResult
from dmls_ray.training.rank import ArtifactOptions, Emit, limit_progress
from dmls_ray.util.files import atomic_write_text


@dataclass(frozen=True)
class LaunchedJob:
    """What the processes of a launched run are to do."""

    config: RuntimeConfig
    train: str
    """`module:function` of the training function."""
    identity: Identity
    """The code and the data of the run."""
    artifacts: ArtifactOptions | None
    module_path: Sequence[str]
    """`module_path` of the driver."""


class JobFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._job_file = path / "job.pickle"
        self.log_file = path / "log.txt"
        self._events_file = path / "events.jsonl"
        self._events_read = 0

    def write_job(self, job: LaunchedJob) -> None:
        """Write what the processes are to do."""
        self._job_file.write_bytes(pickle.dumps(job))

    def read_job(self) -> LaunchedJob:
        """What the processes are to do."""
        job: LaunchedJob = pickle.loads(self._job_file.read_bytes())
        return job

    @contextlib.contextmanager
    def events(self, rank: int) -> Iterator[Emit]:
        """The `emit` of a rank: rank 0 writes events, other ranks write none."""
        if rank:
            yield lambda event: None
            return
        with open(self._events_file, "a", encoding="utf-8", buffering=1) as file:

            def write(event: RankEvent) -> None:
                values = {"epoch": event.epoch.values} if isinstance(event, EpochEnded) else {}
                file.write(json.dumps(values) + "\n")

            yield limit_progress(write)

    def pass_on_events(self, emit: Callable[[RankEvent], object]) -> None:
        """Emit the events that were written completely since the last call."""
        if not self._events_file.exists():
            return
        with open(self._events_file, "rb") as file:
            file.seek(self._events_read)
            complete, newline, _ = file.read().rpartition(b"\n")
        self._events_read += len(complete) + len(newline)
        for values in map(json.loads, complete.splitlines()):
            emit(EpochEnded(epoch=part_of(values["epoch"], EpochRecord, "an epoch")) if values else Progress())

    def write_result(self, result: RankResult) -> None:
        """Leave the result of a rank."""
        atomic_write_text(self._result_file(result.rank), json.dumps(asdict(result)))

    def read_result(self, rank: int) -> RankResult | None:
        """The result of a rank; None if it left none."""
        file = self._result_file(rank)
        if not file.exists():
            return None
        values = json.loads(file.read_text(encoding="utf-8"))
        return RankResult(**{**values, "outcome": Outcome(values["outcome"])})

    def _result_file(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.json"
