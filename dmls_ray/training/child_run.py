"""Runs of a rank: in its process, or, of user code, each in a child process.

What user code leaves behind in its process ends with the process, and so does a hang or a crash.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import torch.distributed as dist

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.run_events import CollectiveWait, EpochEnded, Progress, RankEvent, RankResult
from dmls_ray.training.collective_wait import collective_wait
from dmls_ray.training.error_to_outcome import failure, run_guarded
from dmls_ray.training.link_probe import measure_link
from dmls_ray.training.process import process_group
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.util.fork_server import ForkedProcess, ForkServer
from dmls_ray.util.importing import import_function

PROGRESS_INTERVAL_S = 1.0
"""Minimum time between two signs of progress."""

_END_TIMEOUT_S = 10.0
"""How long a process may take to end after its result."""

_ANSWER_TIMEOUT_S = 4.0
"""How long a process may take to say in which collective it waits."""


def run_rank(
    train: str,
    config: RuntimeConfig,
    rank: RankInfo,
    store: dist.Store | None,
    emit: Emit,
    finish: Callable[[RankResult], None],
    *,
    steps: Counter[str] | None = None,
) -> None:
    """Run the part of one rank in this process.

    Args:
        train: `module:function` of the entry point.
        config: the configuration of the run.
        rank: this rank.
        store: key-value store of this run only; None at world size 1.
        emit: takes the events of the rank.
        finish: takes its result, before the process group ends.
        steps: counts the optimizer steps.
    """
    try:
        with process_group(rank, store):
            function = import_function(train, flag="train")
            link, instruments_s = measure_link(rank, rank.machines)
            rank = replace(rank, instruments_s=instruments_s)
            result = run_guarded(function, config, rank, emit, steps=steps)
            if result.run:
                result = replace(result, run={**result.run, **link})
            finish(result)
    except Exception as error:  # noqa: BLE001 - a group that cannot be made or unmade ends this run only
        finish(failure(error, rank))


def store_of_run(rank: RankInfo, name: str, store: dist.Store | None = None) -> dist.Store | None:
    """The key-value store of one run; None at world size 1.

    Args:
        rank: this rank.
        name: of the run; no other run at this address has it.
        store: the store at the rank's address, if this process has it.
    """
    if rank.store_address is None:
        return None
    return dist.PrefixStore(name, store or dist.TCPStore(*rank.store_address, is_master=False))


class ChildRuns:
    """Runs parts of a rank in child processes, one after the other.

    Args:
        server: starts the processes; it is prepared by `preload`.
    """

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._child: ForkedProcess | None = None
        self.is_interrupted = False
        """Whether the child has been killed by `kill`."""
        self._observed: queue.SimpleQueue[CollectiveWait | None] = queue.SimpleQueue()

    def run(
        self,
        train: str,
        config: RuntimeConfig,
        rank: RankInfo,
        name: str,
        emit: Emit,
        finish: Callable[[RankResult], None],
    ) -> int:
        """Run the part of one rank in a child; as `run_rank`. `name` is that of the run in the store.

        Returns:
            The exit code of the child if it ended without a result, else 0.
        """
        self.is_interrupted = False
        self._child = child = self._server.start(_run_in_child, train, config, rank, name)
        try:
            while not isinstance(message := child.connection.recv(), RankResult):
                self._take(message, rank, emit)
        except (EOFError, OSError):
            return child.wait()
        finish(message)
        child.wait(_END_TIMEOUT_S)
        return 0

    def _take(self, message: RankEvent | _Observed, rank: RankInfo, emit: Emit) -> None:
        assert self._child is not None
        if isinstance(message, _Observed):
            self._observed.put(message.wait)
            return
        goes_on = emit(message)
        if rank.prunable and isinstance(message, EpochEnded):
            self._child.connection.send(goes_on)

    @property
    def is_running(self) -> bool:
        """Whether a child runs."""
        return self._child is not None and self._child.exit_code is None

    def collective_wait(self) -> CollectiveWait | None:
        """The collective in which the child waits, asked from another thread; None if it does anything else."""
        if not self.is_running:
            return None
        assert self._child is not None
        try:
            self._child.connection.send(_OBSERVE)
            return self._observed.get(timeout=_ANSWER_TIMEOUT_S)
        except (OSError, queue.Empty):
            return None

    def kill(self) -> None:
        """End the child, if there is one, from any thread."""
        if self.is_running:
            assert self._child is not None
            self.is_interrupted = True
            self._child.kill()


_OBSERVE = "observe"
"""Asks a child in which collective it waits."""


@dataclass(frozen=True)
class _Observed:
    """Answer of a child."""

    wait: CollectiveWait | None


class _Rank:
    """The connection of a child with its rank process."""

    def __init__(self, connection: Connection, rank: RankInfo) -> None:
        self._connection, self._rank = connection, rank
        self._sending = threading.Lock()
        self._decisions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._last_progress = time.monotonic()
        self._thread = threading.get_ident()
        self.steps: Counter[str] = Counter()
        threading.Thread(target=self._listen, daemon=True, name="rank").start()

    def send(self, message: RankEvent | RankResult | _Observed) -> None:
        with self._sending:
            self._connection.send(message)

    def emit(self, event: RankEvent) -> bool | None:
        """Pass an event on; wait for the decision after an epoch of a prunable run."""
        if isinstance(event, Progress):
            if time.monotonic() - self._last_progress >= PROGRESS_INTERVAL_S:
                self._last_progress = time.monotonic()
                self.send(event)
            return None
        self.send(event)
        return self._decisions.get() if self._rank.prunable else None

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                return  # the rank is gone, and this process ends with it
            if message == _OBSERVE:
                self.send(_Observed(collective_wait(self._thread, self.steps)))
            else:
                self._decisions.put(message)


def _run_in_child(connection: Connection, train: str, config: RuntimeConfig, rank: RankInfo, name: str) -> None:
    parent = _Rank(connection, rank)
    run_rank(train, config, rank, store_of_run(rank, name), parent.emit, parent.send, steps=parent.steps)
