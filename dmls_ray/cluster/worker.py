"""The loop of a worker process of Ray Train: join the broker, then serve one lease after another."""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil
import ray
import ray.train
from ray.train.collective import broadcast_from_rank_zero

from dmls_ray.cluster.abort import abort_pending_collectives
from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.messages import Lease, Leave, Observe, RankRegistration, TrainerSettings
from dmls_ray.cluster.processes import oom_kills, start_of
from dmls_ray.cluster.scheduler.attempt import oom_kill_evidence
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import describe_machine
from dmls_ray.records.run_events import EpochEnded, RankEvent, RankResult
from dmls_ray.training.preload import preload
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.util.module_path import search_module_path
from dmls_ray.util.text import first_line
from dmls_ray.workloads.registry import DEFAULT, workload

if TYPE_CHECKING:
    from torch.distributed import TCPStore

    from dmls_ray.training.child_run import ChildRuns

RETRY_INTERVAL_S = 2.0
"""Seconds until the next question whether a run is broken, after an answer without a reason."""

PROGRESS_INTERVAL_S = 1.0
"""Minimum time between two signs of progress."""


def serve(train_loop_config: dict[str, TrainerSettings]) -> None:
    """Serve the broker.

    Args:
        train_loop_config: the settings under the key `settings`, since Ray Train passes a dictionary.
    """
    settings = train_loop_config["settings"]
    _enter_working_dir(settings.working_dir, settings.module_path)
    try:
        worker = RankWorker(settings)
    except Exception as error:  # noqa: BLE001 - another start would fail in the same way
        reason = (
            f"A rank on {_machine(settings)} could not start: {type(error).__name__}: {first_line(error, empty='')}"
        )
        BrokerClient(settings.broker).call("trainer_failed", settings.trainer, reason)
        return
    while (lease := worker.next_lease()) is not None:
        worker.run(lease)


class RankWorker:
    """This rank, registered with the broker."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.broker = BrokerClient(settings.broker)
        self.card, self.store, self._fork_server = _register(settings)
        self.name = self.broker.call("join", self.card)
        self.folder = os.getcwd()
        self._unconfirmed: tuple[Any, tuple[Any, ...]] | None = None
        """The broker's answer to the last result, and the call; None if the broker has the result."""
        self._lease_id = ""
        """The run under way."""
        self.steps: Counter[str] = Counter()
        """Its optimizer steps."""
        self._thread = threading.get_ident()
        self._epochs: list[EpochEnded] = []
        """What this rank has reported of the current run, in order."""
        self._child_runs: ChildRuns | None = None
        # Long poll in its own thread: returns only when a peer is lost or the sweep ends.
        threading.Thread(target=self._watch_for_lost_peers, daemon=True, name="lost-ranks").start()

    def _watch_for_lost_peers(self) -> None:
        """Abort collectives that wait for lost ranks, when the broker reports them; report waits when it asks.

        End this process if the broker has removed this rank as lost.
        """
        client = BrokerClient(self.broker.name)
        while True:
            try:
                reply = client.call("interruption", self.name)
            except (ray.exceptions.RayActorError, ValueError):
                os._exit(1)  # the sweep is over, since its broker died
            except ray.exceptions.RayError:
                continue  # the answer is lost
            if reply is None:
                os._exit(1)
            try:
                if isinstance(reply, Observe):
                    self._report_wait(client)
                elif reply and self._child_runs is not None:
                    self._child_runs.kill()
                elif reply:
                    abort_pending_collectives(reply)
                else:
                    time.sleep(RETRY_INTERVAL_S)
            except Exception:  # noqa: BLE001 - without this thread the next loss would not be noticed
                # The broker ends this process, if it still waits in a few seconds.
                traceback.print_exc()

    def _report_wait(self, client: BrokerClient) -> None:
        from dmls_ray.training.collective_wait import collective_wait

        if self._child_runs is not None:
            wait = self._child_runs.collective_wait()
        else:
            wait = collective_wait(self._thread, self.steps)
        client.call("waits", self.name, self._lease_id, wait)

    def run(self, lease: Lease) -> None:
        """Run the part of this rank in a run: of one with user code, in a child process."""
        import torch.distributed as dist

        from dmls_ray.training.child_run import ChildRuns, run_rank, store_of_run

        job, emit, finish = lease.job, self.make_emit(lease), functools.partial(self.finish, lease)
        self._child_runs = None
        if job.identity.code:
            self._fork_server = self._fork_server or _fork_server(job.train)
            self._fork_server.wait_until_ready()
            self._child_runs = ChildRuns(self._fork_server)
        oom_kills_before = oom_kills()
        self.broker.submit("begun", self.name, lease.lease_id, oom_kills_before)
        # The clock of this process, not the broker's.
        rank = replace(lease.rank, assigned_at=time.perf_counter())

        if self._child_runs is not None:
            exit_code = self._child_runs.run(job.train, job.config, rank, lease.lease_id, emit, finish)
            if exit_code:
                finish(self._result_of_ended(rank, exit_code, oom_kills_before))
            return
        self.steps.clear()
        store = store_of_run(rank, lease.lease_id, self.store if rank.rank == 0 else None)
        run_rank(job.train, job.config, rank, store, emit, finish, steps=self.steps)
        if dist.is_initialized():
            os._exit(1)  # a process group that cannot be unmade would be in the way of the next run's

    def next_lease(self) -> Lease | None:
        """Wait for work; None when there is no more."""
        self._confirm_result()
        lease = self.broker.call("next_lease", self.name)
        if isinstance(lease, Leave):
            os._exit(1)
        assert lease is None or isinstance(lease, Lease)
        self._lease_id = lease.lease_id if lease is not None else ""
        return lease

    def make_emit(self, lease: Lease) -> Emit:
        """The `emit` of a run: passes on epochs, and signs of progress at most every `PROGRESS_INTERVAL_S`.

        The epochs of the run are those of rank 0; in a prunable run the other ranks wait for the decisions, too.
        """
        last, rank = time.monotonic(), lease.rank
        self._epochs = []

        def emit(event: RankEvent) -> bool | None:
            nonlocal last
            if isinstance(event, EpochEnded) and (rank.rank == 0 or rank.prunable):
                goes_on = self._report(lease, event)
                last = time.monotonic()
                return goes_on
            if time.monotonic() - last >= PROGRESS_INTERVAL_S:
                self.broker.submit("progress", self.name, lease.lease_id)
                last = time.monotonic()
            return None

        return emit

    def _report(self, lease: Lease, event: EpochEnded) -> bool | None:
        """Send an epoch with its number; in a prunable run, wait for the decision whether it continues."""
        self._epochs.append(event)
        number = len(self._epochs)
        if not lease.rank.prunable:
            self.broker.submit("emit", self.name, lease.lease_id, event, number)
            return None
        goes_on: bool = self.broker.call("epoch", self.name, lease.lease_id, event, number)
        return goes_on

    def _result_of_ended(self, rank: RankInfo, exit_code: int, oom_kills_before: int | None) -> RankResult:
        """The result of a child that has ended without one."""
        outcome, reason = Outcome.KILLED, f"its process ended with exit code {exit_code}"
        if evidence := oom_kill_evidence(oom_kills_before, oom_kills(), rank.machine):
            outcome, reason = Outcome.OOM, evidence
        return RankResult(
            rank=rank.rank,
            machine=rank.machine,
            device=rank.device,
            outcome=outcome,
            reason=reason,
            is_symptom=self._child_runs is not None and self._child_runs.is_interrupted,
        )

    def finish(self, lease: Lease, result: RankResult) -> None:
        """Send the result of a run; this may end the process."""
        result = replace(result, rss_mib=psutil.Process().memory_info().rss / 2**20)
        self._lease_id = ""
        # With all epochs, since calls may arrive in another order than they were made, or not at all.
        sent = (self.name, lease.lease_id, result, tuple(self._epochs))
        self._epochs = []
        if result.outcome == Outcome.OK and not result.device_lost:
            # The answer is waited for in `next_lease`, so that the process group ends meanwhile.
            self._unconfirmed = self.broker.submit("finish", *sent), sent
            return
        may_stay = self.broker.call("finish", *sent)
        if not may_stay or result.device_lost:
            # Other ranks wait for this one in a collective, and only the end of its process ends that; or its GPU
            # serves this process no more. Train starts a new one.
            os._exit(1)

    def _confirm_result(self) -> None:
        """Wait until the broker has the last result."""
        if self._unconfirmed is None:
            return
        answer, sent = self._unconfirmed
        self._unconfirmed = None
        try:
            ray.get(answer)
        except ray.exceptions.ActorUnavailableError:
            # The network failed, and the result may not have arrived. The first of two counts.
            self.broker.call("finish", *sent)


def _register(settings: TrainerSettings) -> tuple[RankRegistration, TCPStore, ForkServer | None]:
    """Load what runs need. Return the registration of this rank, its key-value store, and its fork server."""
    host = ray.util.get_node_ip_address()
    _use_interface_of(host)
    # It imports the same as this process, meanwhile.
    server = _fork_server(settings.user_code_entry) if settings.user_code_entry else None
    preload(settings.user_code_entry or workload(DEFAULT).entrypoint)
    from ray.train.torch import get_device

    from dmls_ray.training.discarded_run import discard_first_run
    from dmls_ray.training.process import store_at

    device = str(get_device())
    discard_first_run(device)
    context = ray.train.get_context()
    if context.get_world_rank() == 0:
        # Once per machine, and outside the time of any run; the other ranks wait in the broadcast below.
        for name, *arguments in settings.data:
            workload(name).load_cached(*arguments)
    # One store for all runs that this rank leads, so that a run needs no new port.
    store = store_at(host)
    card = RankRegistration(
        trainer=settings.trainer,
        # This also waits until all ranks of the group have started.
        group=broadcast_from_rank_zero(uuid.uuid4().hex),
        index=context.get_world_rank(),
        machine=_machine(settings),
        pid=os.getpid(),
        device=device,
        store=(host, store.port),
        node_id=ray.get_runtime_context().get_node_id(),
        process_started=start_of(os.getpid()),
        oom_kills=oom_kills(),
        machine_order=settings.machine_order.get(_machine(settings), 0),
        machine_info=describe_machine(),
    )
    return card, store, server


def _fork_server(entrypoint: str) -> ForkServer:
    return ForkServer("dmls_ray.training.preload:preload", entrypoint)


def _enter_working_dir(folder: str, module_path: Sequence[str]) -> None:
    """Use the driver's working directory, where it exists on this machine, and its module search path."""
    if os.path.isdir(folder):
        os.chdir(folder)
    search_module_path(module_path)


def _use_interface_of(address: str) -> None:
    """Let gloo and NCCL use the network interface of this address; that of the host name may be the loopback."""
    for interface, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == address for candidate in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def _machine(settings: TrainerSettings) -> str:
    """The driver's name of this machine, since several machines may have the same host name."""
    return settings.machine_names.get(ray.get_runtime_context().get_node_id(), socket.gethostname())
