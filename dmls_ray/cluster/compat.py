"""Every private API of Ray that this package uses, with the versions it was seen in, its purpose and what happens
without it. Imports Ray inside functions only.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PrivateAPI:
    """One private name of Ray."""

    path: str
    """`module:attribute`."""
    purpose: str
    without: str
    """What happens in a version that lacks it."""
    seen_in: str = "2.60.0"
    """Versions of Ray that have it."""

    @property
    def exists(self) -> bool:
        """Whether the installed Ray has it."""
        try:
            pkgutil.resolve_name(self.path)
        except (ImportError, AttributeError):
            return False
        return True


PRIVATE_APIS = (
    PrivateAPI(
        "ray.train.v2._internal.execution.callback:ControllerCallback",
        "learn which actor controls a trainer, so that a trainer that waits for a machine that left can be ended",
        "such a trainer waits until Ray gives up",
    ),
    PrivateAPI(
        "ray.train.torch:TorchTrainer._create_default_callbacks",
        "leave out helpers that cost a process each and do nothing here (Ray Data, placement group cleaner)",
        "every trainer starts two more processes",
    ),
    PrivateAPI(
        "ray._raylet:PlacementGroupID",
        "free what the trainer of a dead controller holds of a cluster that the sweep has started",
        "after the death of a controller the ranks cannot be started again",
    ),
    PrivateAPI(
        "ray._private.worker:_worker_logs_enabled",
        "keep the messages about nodes, which a joined cluster sends to every driver, out of the terminal",
        "they are printed between the lines of the sweep",
    ),
    PrivateAPI(
        "ray._private.ray_constants:ENABLE_RAY_CLUSTER",
        "make a cluster of this machine listen on the loopback interface only",
        "a sweep fails with AttributeError when it starts a cluster, which would listen on all interfaces",
    ),
    PrivateAPI(
        "ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator:get_or_create_autoscaling_coordinator",
        "start, while PyTorch loads, the actor that Train's controller waits for",
        "a sweep starts a second later",
    ),
    PrivateAPI(
        "ray._private.grpc_utils:init_grpc_channel",
        "ask a cluster for its nodes and versions before joining it",
        "Ray itself finds out, in up to a minute and many lines",
    ),
    PrivateAPI("ray._private.utils:check_version_info", "as above: compare the versions", "as above"),
    PrivateAPI("ray.core.generated.gcs_service_pb2:GetAllNodeInfoRequest", "as above", "as above"),
    PrivateAPI("ray.core.generated.gcs_service_pb2_grpc:NodeInfoGcsServiceStub", "as above", "as above"),
    PrivateAPI("ray.core.generated.gcs_pb2:GcsNodeInfo", "as above: which nodes are alive", "as above"),
    PrivateAPI(
        "ray._raylet:Config",
        "send this machine's token to the cluster that was started on this machine",
        "RAY_AUTH_MODE=token has to be exported",
    ),
)

NODE_DIED_TEXT = "its node has died"
"""In Ray's error about a worker whose machine is gone. Seen in 2.60.0. Without it, such a death counts as a retry."""

LOW_MEMORY_TEXT = "running low on memory"
"""In Ray's error about a worker that its memory monitor has killed. Seen in 2.60.0. Without it, the outcome of the run
is `killed`, not `oom`."""


def controller_callback_class() -> type:
    """Base class of callbacks that Train calls in its controller."""
    try:
        from ray.train.v2._internal.execution.callback import ControllerCallback
    except ImportError:
        return object
    found: type = ControllerCallback
    return found


def free_unnamed_placement_groups() -> None:
    """Free what the trainer of a dead controller still holds of a cluster that the sweep has started.

    On a cluster that was joined, Train's own cleaner does so, at the cost of one process.
    """
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

    for key, group in placement_group_table().items():
        # Tune's placement groups have names.
        if not group["name"] and group["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(PlacementGroupID.from_hex(key)))


def show_cluster_messages(shown: bool) -> None:
    """Print, or do not print, what a joined cluster reports about its nodes."""
    import ray

    ray._private.worker._worker_logs_enabled = shown


@contextmanager
def loopback_only() -> Iterator[None]:
    """A cluster that is started meanwhile can only be reached from this machine.

    Ray takes a loopback address for a mistake, and listens on all interfaces, unless it knows when it is imported that
    the cluster has one machine.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def prestart_autoscaling_coordinator() -> None:
    """Start, early, the actor that Train's controller waits for before it places its workers.

    Ray starts it on demand; started while PyTorch still loads in this process, it is there when it is needed.
    """
    with suppress(ImportError):
        from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
            get_or_create_autoscaling_coordinator,
        )

        get_or_create_autoscaling_coordinator()


def ask_head(address: str, timeout: float) -> tuple[list[Any], bytes]:
    """The nodes of a cluster, and its versions as JSON, which are empty if it does not report them.

    Raises:
        ImportError: this version of Ray keeps the interface elsewhere.
        grpc.RpcError: the answer is no cluster's, or it requires another token.
    """
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import gcs_service_pb2 as messages
    from ray.core.generated import gcs_service_pb2_grpc as services

    channel = init_grpc_channel(address, options=[("grpc.enable_http_proxy", 0)])
    try:
        nodes = services.NodeInfoGcsServiceStub(channel).GetAllNodeInfo(
            messages.GetAllNodeInfoRequest(), timeout=timeout
        )
        metadata = services.InternalKVGcsServiceStub(channel).InternalKVGet(
            messages.InternalKVGetRequest(key=b"CLUSTER_METADATA", namespace=b"cluster"), timeout=timeout
        )
    finally:
        channel.close()
    return list(nodes.node_info_list), metadata.value


def check_versions(versions: dict[str, Any], address: str) -> None:
    """Compare the versions of a cluster with those here.

    Raises:
        ImportError: this version of Ray keeps the check elsewhere.
        RuntimeError: they do not go together.
    """
    from ray._private.utils import check_version_info

    check_version_info(versions, address)


def alive_nodes(nodes: list[Any]) -> list[Any]:
    """Those of `ask_head` that are alive."""
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    return [node for node in nodes if node.state == GcsNodeInfo.ALIVE]


def read_auth_mode() -> None:
    """Make Ray read RAY_AUTH_MODE again, after it was changed in this process."""
    import ray

    ray._raylet.Config.initialize("")
