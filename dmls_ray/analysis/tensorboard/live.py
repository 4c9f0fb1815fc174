"""TensorBoard while a sweep goes on: an error of the writer turns it off and never ends the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import read_sweep

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

    def begin(self, records: Iterable[RunRecord]) -> None:
        """Begin a sweep whose session is in sweep.json already.

        Args:
            records: the runs that stay as they are.
        """
        self._guard(lambda: self._begin(records))

    def run_finished(self, record: RunRecord) -> None:
        """Write the files of a run."""
        writer = self._writer
        if writer is not None:
            self._guard(lambda: writer.write(record))

    def _begin(self, records: Iterable[RunRecord]) -> None:
        # Imported here: TensorBoard's messages take 0.2 s, and a sweep may go without them.
        from dmls_ray.analysis.tensorboard.writer import TensorBoardWriter

        question = SweepQuestion.of(read_sweep(self._folder).get("sessions", []))
        self._writer = TensorBoardWriter(self._folder / FOLDER, question.varied)
        self._writer.write_all(records)

    def _guard(self, write: Callable[[], object]) -> None:
        if self._off:
            return
        try:
            write()
        except Exception as error:  # noqa: BLE001 - a sweep does not fail because of TensorBoard
            self._off = True
            reason = f"{type(error).__name__}: {error}"
            self._notify(f"{self._folder / FOLDER} cannot be written ({reason}); the sweep goes on without it.")
