"""TensorBoard while a sweep goes on: an error of the writer turns it off and never ends the sweep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.storage.sweep_file import read_sweep

if TYPE_CHECKING:
    from dmls_ray.analysis.tensorboard.writer import TensorBoardWriter


FOLDER = "tensorboard"
"""Folder of the event files within a results folder."""


class LiveTensorBoardWriter:
    """`TensorBoardWriter` of a sweep that goes on; after the first error it writes nothing more.

    Args:
        folder: the results folder.
        notify: called once with the reason if the event files cannot be written.
        off: write nothing.
    """

    def __init__(self, folder: Path, notify: Callable[[str], object], *, off: bool = False) -> None:
        self._folder, self._notify, self._off = folder, notify, off
        self._writer: TensorBoardWriter | None = None
        self._begins: threading.Thread | None = None

    def begin(self, records: Iterable[RunRecord]) -> None:
        """Begin a sweep whose session is in sweep.json already. The files are written in another thread.

        Args:
            records: the runs that stay as they are.
        """
        # Importing the messages takes 0.2 s, for which the ranks need not wait.
        self._begins = threading.Thread(target=self._guard, args=(self._begin, list(records)), daemon=True)
        self._begins.start()

    def run_started(self, record: RunRecord) -> None:
        """As `TensorBoardWriter.run_started`."""
        self._write("run_started", record)

    def epoch_ended(self, run_id: str, epoch: EpochRecord) -> None:
        """As `TensorBoardWriter.epoch_ended`."""
        self._write("epoch_ended", run_id, epoch)

    def run_finished(self, record: RunRecord) -> None:
        """As `TensorBoardWriter.run_finished`."""
        self._write("run_finished", record)

    def end(self, records: Iterable[RunRecord]) -> None:
        """End the sweep; write the runs if nothing was to be run and there are no event files yet."""
        if self._begins is None and not (self._folder / FOLDER).exists():
            self.begin(records)
        self._write("close")

    def _write(self, method: str, *args: Any) -> None:
        if self._begins is not None:
            self._begins.join()
        if self._writer is not None:
            self._guard(getattr(self._writer, method), *args)

    def _begin(self, records: Iterable[RunRecord]) -> None:
        from dmls_ray.analysis.tensorboard.writer import TensorBoardWriter

        question = SweepQuestion.of(read_sweep(self._folder).get("sessions", []))
        self._writer = TensorBoardWriter(self._folder / FOLDER, question.varied, question.changed)
        self._writer.sync(records)

    def _guard(self, write: Callable[..., object], *args: Any) -> None:
        if self._off:
            return
        try:
            write(*args)
        except Exception as error:  # noqa: BLE001 - a sweep does not fail because of TensorBoard
            self._off = True
            reason = f"{type(error).__name__}: {error}"
            self._notify(f"{self._folder / FOLDER} cannot be written ({reason}); the sweep goes on without it.")
