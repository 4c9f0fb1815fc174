"""What a worker of Ray Train's group runs: join the broker, then serve one lease after another until none is left."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import psutil
import ray
import ray.train
from ray.train.collective import broadcast_from_rank_zero

from dmls_ray.cluster.actors import BrokerLine, oom_kills
from dmls_ray.cluster.messages import Lease, Leave, RankCard
from dmls_ray.importing import import_function
from dmls_ray.rank import Emit, RankInfo

if TYPE_CHECKING:
    from torch.distributed import TCPStore

_TELL_EVERY_S = 1.0
"""How often a rank tells that it gets on, at most."""


def serve(settings: dict[str, Any]) -> None:
    """Serve the broker.

    Args:
        settings: `broker`, its name; `trainer`, the name of this trainer; `cwd` and `path`, the driver's working
            folder and module search path, used where they exist here; `max_leases`, after how many to leave
            (None: never).
    """
    _settle_in(settings)
    try:
        me = _Member(settings)
    except Exception as error:  # noqa: BLE001 - whatever it is, another start would end in the same way
        lines = str(error).strip().splitlines() or [""]
        reason = f"A rank on {socket.gethostname()} could not start: {type(error).__name__}: {lines[0]}"
        BrokerLine(settings["broker"]).call("abort", reason)
        return
    served = 0
    while settings["max_leases"] is None or served < settings["max_leases"]:
        lease = me.next_lease()
        if lease is None:
            return
        _work(lease, me)
        served += 1


class _Member:
    """This rank, as the broker knows it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.broker = BrokerLine(settings["broker"])
        self.card, self.store = _make_ready(settings)
        self.name = self.broker.call("join", self.card)
        self.folder = os.getcwd()

    def next_lease(self) -> Lease | None:
        """Wait for work; None when there is no more."""
        while True:
            try:
                lease = self.broker.call_once("next_lease", self.name)
            except ray.exceptions.RayActorError:
                lease = Leave(join_again=True)
            if not isinstance(lease, Leave):
                assert lease is None or isinstance(lease, Lease)
                return lease
            if not lease.join_again:
                os._exit(1)
            self.name = self.broker.call("join", self.card)

    def tells(self, lease: Lease) -> Emit:
        """The `emit` of a run: passes events on; signs of progress now and then, since there is one each step."""
        told = time.monotonic()

        def emit(event: dict[str, Any]) -> bool | None:
            nonlocal told
            goes_on = None
            if event["kind"] == "epoch" and lease.asks:
                goes_on = self.broker.call("epoch", self.name, lease.lease_id, event, tells=lease.rank == 0)
            elif event["kind"] != "progress":
                self.broker.tell("emit", self.name, lease.lease_id, event)
            elif time.monotonic() - told < _TELL_EVERY_S:
                return None
            else:
                self.broker.tell("progress", self.name, lease.lease_id)
            told = time.monotonic()
            return goes_on

        return emit

    def finish(self, lease: Lease, result: dict[str, Any]) -> None:
        """Tell how the run ended; this may end the process."""
        result["rss_mib"] = psutil.Process().memory_info().rss / 2**20
        try:
            answer = self.broker.tell("finish", self.name, lease.lease_id, result)
            may_stay = result["outcome"] == "ok" or ray.get(answer)
        except ray.exceptions.RayActorError:
            may_stay = False  # nobody is left to ask; others may wait for this rank
        if not may_stay or result.get("device_lost"):
            # Others wait for this rank in a collective, and the end of its process is what tells them; or its GPU
            # serves this process no more. Train starts a new one.
            os._exit(1)


def _make_ready(settings: dict[str, Any]) -> tuple[RankCard, TCPStore]:
    """Load all that runs need; returns what this rank tells of itself, and its key-value store."""
    _load_all()
    from dmls_ray.training.process import store_at

    context = ray.train.get_context()
    host = ray.util.get_node_ip_address()
    _use_interface_of(host)
    # One store for all runs that this rank will lead: no port to be found and lost again for each run.
    store = store_at(host)
    card = RankCard(
        trainer=settings["trainer"],
        # Also waits for all ranks of the group, which are then all there.
        group=broadcast_from_rank_zero(uuid.uuid4().hex),
        index=context.get_world_rank(),
        machine=socket.gethostname(),
        pid=os.getpid(),
        device=_accelerator(),
        store=(host, store.port),
        node_id=ray.get_runtime_context().get_node_id(),
        born=psutil.Process().create_time(),
        oom_kills=oom_kills(),
    )
    return card, store


def _load_all() -> None:
    """Import all that a run needs, so that no run pays for it.

    What is loaded stays: it is kept from the garbage collector, now (a quarter of the time of these imports) and later,
    when a collection at the start of each run looks only at what runs made.
    """
    gc.disable()
    import torch

    import dmls_ray.training.loop  # noqa: F401

    # The first optimizer of a process loads much of PyTorch's compiler.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    gc.freeze()
    gc.enable()


def _work(lease: Lease, me: _Member) -> None:
    import torch.distributed as dist

    from dmls_ray.training.guard import failure, run_guarded
    from dmls_ray.training.process import process_group

    # A run may have gone elsewhere.
    os.chdir(me.folder)
    me.broker.tell("begun", me.name, lease.lease_id, oom_kills())
    rank = RankInfo(
        rank=lease.rank,
        world_size=lease.config.world_size,
        device=lease.device,
        backend=lease.backend,
        machine=lease.machine,
        keep=lease.keep,
        asks=lease.asks,
    )
    try:
        shared = None
        if rank.world_size > 1:
            client = me.store if lease.rank == 0 else dist.TCPStore(*lease.store, is_master=False)
            shared = dist.PrefixStore(lease.lease_id, client)
        with process_group(rank, shared):
            train = import_function(lease.train, flag="train")
            result = run_guarded(train, lease.config, rank, me.tells(lease))
            me.finish(lease, result)
    except Exception as error:  # noqa: BLE001 - a group that cannot be made or unmade ends this run, not the worker
        me.finish(lease, failure(error, rank))


def _settle_in(settings: dict[str, Any]) -> None:
    """Relative paths and the user's modules mean here what they mean to the driver, where its folders exist."""
    if os.path.isdir(settings["cwd"]):
        os.chdir(settings["cwd"])
    # `import_function` adds the working folder, behind what is installed, as it does in the driver.
    for folder in reversed(settings["path"]):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def _use_interface_of(host: str) -> None:
    """gloo and NCCL use the interface of the Ray node's address; that of the host name may be the loopback's."""
    for interface, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def _accelerator() -> str:
    from ray.train.torch import get_device

    return str(get_device())
