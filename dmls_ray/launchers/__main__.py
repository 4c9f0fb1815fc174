"""One run in processes of its own: `python -m dmls_ray.launchers FOLDER`, by itself or under torchrun or mpirun.

The folder's job.pickle says what to run. Rank 0 appends events to `EVENTS_FILE`, and each rank leaves its result in
rank-<n>.pickle; see `command`, which starts this.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from dmls_ray.launchers.command import EVENTS_FILE, PARENT, message_line, result_file
from dmls_ray.records.run_events import Progress, RankEvent, RankResult

_TELL_PROGRESS_EVERY_S = 1.0


def main(folder: Path) -> None:
    """Run the job; a failure of the run is a result, not an exit code."""
    began = time.perf_counter()
    threading.Thread(target=_end_with, args=(int(os.environ[PARENT]),), daemon=True).start()
    config, function, artifacts, path = pickle.loads((folder / "job.pickle").read_bytes())
    sys.path[:0] = [entry for entry in path if entry not in sys.path]

    from dmls_ray.util.importing import import_function

    train = import_function(function, flag="train")
    if config.launcher == "spawn":
        from dmls_ray.launchers.spawn import run_spawned

        with _events(folder) as emit:
            for result in run_spawned(config, train=train, artifacts=artifacts, emit=emit):
                _leave(folder, result)
        return
    if config.launcher == "inline":
        from dmls_ray.launchers.inline import run_inline

        with _events(folder) as emit:
            _leave(folder, run_inline(config, train=train, artifacts=artifacts, emit=emit))
        return
    _be_a_rank(folder, config, train, artifacts, began)


def _be_a_rank(folder: Path, config: Any, train: Any, artifacts: Any, began: float) -> None:
    """This process is one of several that torchrun or mpirun has started."""
    import dataclasses

    import torch.distributed as dist

    from dmls_ray.launchers.local_rank import rank_info
    from dmls_ray.records.outcome import Outcome
    from dmls_ray.training.error_to_outcome import failure, run_guarded
    from dmls_ray.training.process import process_group, store_at
    from dmls_ray.training.rank import RankInfo
    from dmls_ray.util.errors import ClusterError

    number, store = 0, None
    try:
        if config.launcher == "torchrun":
            number, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            # torchrun's agent serves a store already.
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = dist.TCPStore(address, port, is_master=False)
        else:
            from dmls_ray.training.mpi_backend import world

            comm = world()
            number, size = comm.rank, comm.size
            if size != config.world_size:
                raise ClusterError(
                    f"mpirun has made a world of {size} ranks and not of {config.world_size}: it belongs to another "
                    "MPI than mpi4py. Use the mpiexec of pip install 'dmls_ray[mpi]', or an mpi4py built for yours."
                )
            if number == 0:
                store = store_at("127.0.0.1")
            port = comm.bcast(store.port if store else None)
            store = store or dist.TCPStore("127.0.0.1", port, is_master=False)
        rank = dataclasses.replace(rank_info(config, number, artifacts), assigned_at=began)
        with _events(folder) if number == 0 else contextlib.nullcontext(lambda event: None) as emit:
            with process_group(rank, dist.PrefixStore("run", store) if size > 1 else None):
                result = run_guarded(train, config, rank, emit)
                _leave(folder, result)
    except Exception as error:  # noqa: BLE001 - a group that cannot be made is a result like any other
        result = failure(error, RankInfo(rank=number))
        _leave(folder, result)
    if result.outcome is not Outcome.OK and not result.is_symptom:
        # Others may wait for this rank in a collective; the end of its process, and of no other, tells them.
        os._exit(1)


@contextlib.contextmanager
def _events(folder: Path) -> Iterator[Any]:
    told = time.monotonic()
    with open(folder / EVENTS_FILE, "a", buffering=1) as file:

        def emit(event: RankEvent) -> None:
            nonlocal told
            if isinstance(event, Progress) and time.monotonic() - told < _TELL_PROGRESS_EVERY_S:
                return
            told = time.monotonic()
            file.write(message_line(event))

        yield emit


def _leave(folder: Path, result: RankResult) -> None:
    path = result_file(folder, result.rank)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_bytes(pickle.dumps(result))
    os.replace(aside, path)


def _end_with(parent: int) -> None:
    while psutil.pid_exists(parent):
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
