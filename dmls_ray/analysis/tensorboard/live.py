"""The board that TensorBoard shows, while a sweep goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dmls_ray.analysis.summary.sweep_summary import SweepQuestion
from dmls_ray.analysis.tensorboard import event_file
from dmls_ray.analysis.tensorboard.writer import FOLDER, Board
from dmls_ray.records.model import EpochRecord, RunRecord
from dmls_ray.storage.folder import read_sweep


class LiveTensorBoardWriter:
    """Is told of a sweep while it goes on; where the board cannot be written, the sweep goes on without.

    Args:
        folder: the results folder.
        note: is told, once, why it cannot be written.
        off: nothing is to be written.
    """

    def __init__(self, folder: Path, note: Callable[[str], object], *, off: bool = False) -> None:
        self._folder, self._note, self._off = folder, note, off
        self._board: Board | None = None

    def begin(self, records: Iterable[RunRecord], planned: Iterable[Mapping[str, Any]] = ()) -> None:
        """A sweep begins; its call is in sweep.json. These are the runs that stay as they are."""
        self._try(self._begin, records, planned)

    def load(self) -> None:
        """Import what is needed in a thread, while others are waited for."""
        if not self._off:
            threading.Thread(target=self._try, args=(event_file.load,), daemon=True).start()

    def start(self, record: RunRecord) -> None:
        """As `Board.start`."""
        self._tell("start", record)

    def epoch(self, run_id: str, epoch: EpochRecord) -> None:
        """As `Board.epoch`."""
        self._tell("epoch", run_id, epoch)

    def done(self, record: RunRecord) -> None:
        """As `Board.done`."""
        self._tell("done", record)

    def end(self, records: Iterable[RunRecord]) -> None:
        """The sweep is over; where nothing was to be run and there is no board yet, it is made of the records."""
        if self._board is None and not (self._folder / FOLDER).exists():
            self.begin(records)
        self._tell("end")

    def _begin(self, records: Iterable[RunRecord], planned: Iterable[Mapping[str, Any]]) -> None:
        question = SweepQuestion.of(read_sweep(self._folder).get("sessions", []))
        self._board = Board(self._folder / FOLDER, question.varied, question.changed, planned=planned)
        self._board.match(records)

    def _tell(self, what: str, *told: Any) -> None:
        if self._board is not None:
            self._try(getattr(self._board, what), *told)

    def _try(self, write: Callable[..., object], *given: Any) -> None:
        if self._off:
            return
        try:
            write(*given)
        except Exception as error:  # noqa: BLE001 - a sweep does not end for want of a picture of it
            self._off = True
            self._note(
                f"{self._folder / FOLDER} cannot be written ({type(error).__name__}: {error}); the sweep goes on "
                "without it."
            )
