"""The loop of a worker process of Ray Train: join the broker, then serve one lease after another."""

from __future__ import annotations

import functools
import os
import socket
import uuid
from typing import TYPE_CHECKING, Any

import psutil
import ray
import ray.train
from ray.train.collective import broadcast_from_rank_zero

from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.messages import Lease, Leave, RankRegistration, TrainerSettings
from dmls_ray.cluster.processes import oom_kills
from dmls_ray.cluster.scheduler.attempt import oom_kill_evidence
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import machine_facts
from dmls_ray.records.run_events import EpochEnded, RankEvent, RankResult
from dmls_ray.training.rank import preload
from dmls_ray.util.cores import cores_of_share
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.util.importing import search_module_path
from dmls_ray.util.text import first_line
from dmls_ray.workloads.registry import DEFAULT, workload

if TYPE_CHECKING:
    from torch.distributed import TCPStore


def serve_runs(train_loop_config: dict[str, TrainerSettings]) -> None:
    """Serve the broker.

    Args:
        train_loop_config: the settings under the key `settings`, since Ray Train passes a dictionary.
    """
    settings = train_loop_config["settings"]
    place, shares = settings.share
    if shares > 1:
        # Before any library counts the cores.
        os.sched_setaffinity(0, cores_of_share(place, shares))
    if os.path.isdir(settings.working_dir):  # the driver's, where it exists on this machine
        os.chdir(settings.working_dir)
    search_module_path(settings.module_path)
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
        self._unconfirmed: Any = None
        """The broker's answer to the last result; None if the broker has the result."""
        self._epochs: list[EpochEnded] = []
        """What this rank has reported of the current run, in order."""

    def run(self, lease: Lease) -> None:
        """Run the part of this rank in a run: of one with user code, in a child process."""
        import torch.distributed as dist

        from dmls_ray.training.child_run import run_in_child, run_rank, store_of_run

        job, emit, finish = lease.job, functools.partial(self.emit, lease), functools.partial(self.finish, lease)
        has_user_code = bool(job.identity.code)
        if has_user_code:
            self._fork_server = self._fork_server or _fork_server(job.train)
            self._fork_server.wait_until_ready()
        self._epochs = []
        oom_kills_before = oom_kills()
        self.broker.submit("begun", self.name, lease.lease_id, oom_kills_before)
        rank = lease.rank
        rank.clock.start()  # the broker's has come along

        if has_user_code:
            assert self._fork_server is not None
            result = run_in_child(self._fork_server, job.train, job.config, rank, lease.lease_id, emit, finish)
            if result is not None:
                evidence = oom_kill_evidence(oom_kills_before, oom_kills(), rank.machine)
                if evidence and result.outcome is Outcome.KILLED:
                    result.outcome = Outcome.OOM
                    result.reason = evidence
                finish(result)
            return
        store = store_of_run(rank, lease.lease_id, self.store if rank.rank == 0 else None)
        run_rank(job.train, job.config, rank, store, emit, finish)
        if dist.is_initialized():
            os._exit(1)  # a process group that cannot be unmade would be in the way of the next run's

    def next_lease(self) -> Lease | None:
        """Wait for work; None when there is no more."""
        if self._unconfirmed is not None:
            ray.get(self._unconfirmed)
        self._unconfirmed = None
        lease = self.broker.call("next_lease", self.name)
        if isinstance(lease, Leave):
            os._exit(1)
        assert lease is None or isinstance(lease, Lease)
        return lease

    def emit(self, lease: Lease, event: RankEvent) -> bool | None:
        """Pass on an event of a run; in a prunable run, wait after an epoch for the decision whether it continues."""
        if not isinstance(event, EpochEnded):
            self.broker.submit("progress", self.name, lease.lease_id)
            return None
        self._epochs.append(event)
        epoch = (self.name, lease.lease_id, event, len(self._epochs))
        if not lease.rank.prunable:
            self.broker.submit("epoch", *epoch)
            return None
        goes_on: bool = self.broker.call("epoch", *epoch)
        return goes_on

    def finish(self, lease: Lease, result: RankResult) -> None:
        """Send the result of a run; this may end the process."""
        # With all epochs, since calls may arrive in another order than they were made.
        sent = (self.name, lease.lease_id, result, tuple(self._epochs))
        if result.outcome == Outcome.OK and not result.device_lost:
            # The answer is waited for in `next_lease`, so that the process group ends meanwhile.
            self._unconfirmed = self.broker.submit("finish", *sent)
            return
        may_stay = self.broker.call("finish", *sent)
        if not may_stay or result.device_lost:
            # Other ranks wait for this one in a collective, and only the end of its process ends that; or its GPU
            # serves this process no more. Train starts a new one.
            os._exit(1)


def _register(settings: TrainerSettings) -> tuple[RankRegistration, TCPStore, ForkServer | None]:
    """Load what runs need. Return the registration of this rank, its key-value store, and its fork server."""
    host = ray.util.get_node_ip_address()
    # gloo and NCCL use the interface of this address; that of the host name may be the loopback.
    for interface, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == host for candidate in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    # It imports the same as this process, meanwhile.
    server = _fork_server(settings.user_code_entry, settings.preload) if settings.user_code_entry else None
    preload(settings.user_code_entry or workload(DEFAULT).entrypoint)
    from ray.train.torch import get_device

    from dmls_ray.training.process import discard_first_run, store_at

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
        process_started=psutil.Process().create_time(),
        machine_order=settings.machine_order.get(_machine(settings), 0),
        machine_info=machine_facts(),
    )
    return card, store, server


def _fork_server(entrypoint: str, libraries: str = "") -> ForkServer:
    return ForkServer("dmls_ray.training.rank:preload", entrypoint, libraries)


def _machine(settings: TrainerSettings) -> str:
    """The driver's name of this machine, since several machines may have the same host name."""
    return settings.machine_names.get(ray.get_runtime_context().get_node_id(), socket.gethostname())
