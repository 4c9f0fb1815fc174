"""`begin_board`: TensorBoard's files while a sweep goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dmls_ray.config.grid import Run
from dmls_ray.storage.store import Store
from dmls_ray.util.importing import missing_extra

if TYPE_CHECKING:
    from dmls_ray.analysis.tensorboard.writer import LiveTensorBoardWriter


def begin_board(
    store: Store, wanted: str, again: Iterable[Run], notify: Callable[[str], None]
) -> LiveTensorBoardWriter | None:
    """Write the files of the runs that are not run again; returns the writer of the others, if there are to be files.

    Args:
        store: the records.
        wanted: `--tensorboard`.
        again: the runs that are run again.
        notify: takes a message for the user.
    """
    if wanted == "off":
        return None
    # It is an extra, and its absence is no fault.
    if reason := missing_extra("tensorboard", "tensorboard", "--tensorboard live"):
        if wanted == "live":
            notify(f"{reason} The sweep goes on without.")
        return None
    # Imported here: TensorBoard's messages take 0.2 s, and a sweep may go without them.
    from dmls_ray.analysis.tensorboard.writer import LiveTensorBoardWriter

    board = LiveTensorBoardWriter(store.folder, notify)
    run_ids = {run.run_id for run in again}
    board.write_all([record for record in store.records if record.run_id not in run_ids])
    return board
