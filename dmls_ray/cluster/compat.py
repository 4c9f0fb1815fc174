"""Private APIs of Ray that this package needs, last seen in Ray 2.60.0. Imports Ray inside functions only.

A test checks that each of them still exists. Each function says what happens without its names.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dmls_ray.util.template_request import TEMPLATES, know_templates

NODE_DIED_TEXT = "its node has died"
"""In Ray's error about a worker whose machine is gone. Without it, such a death counts as a retry."""

LOW_MEMORY_TEXT = "running low on memory"
"""In Ray's error about a worker that its memory monitor has killed. Without it, the outcome of the run
is `killed`, not `oom`."""


def controller_callback_class() -> type:
    """Base class of callbacks that Train calls in its controller, from which they learn the controller's actor.

    Without it: no sweep starts. A trainer that waits for a machine that has left would wait until Ray gives up.
    """
    from ray.train.v2._internal.execution.callback import ControllerCallback

    found: type = ControllerCallback
    return found


def show_cluster_messages(shown: bool) -> None:
    """Print, or do not print, what the cluster reports to every driver about its nodes and about workers that died.

    Without it: its paragraphs, with colour codes, appear between the lines of the sweep.
    """
    import ray

    ray._private.worker._worker_logs_enabled = shown


def connect_by_itself(allowed: bool) -> None:
    """Let Ray connect by itself where it is called without a connection, as it does by default, or not.

    Without it: a thread of a sweep whose cluster was lost may start a cluster of its own.
    """
    from ray._private import auto_init_hook

    auto_init_hook.enable_auto_connect = allowed and os.environ.get("RAY_ENABLE_AUTO_CONNECT") != "0"


@contextmanager
def loopback_only() -> Iterator[None]:
    """A cluster that is started meanwhile can only be reached from this machine.

    Ray takes a loopback address for a mistake, and listens on all interfaces, unless it knows when it is imported that
    the cluster has one machine.
    Without it: a sweep fails with AttributeError when it starts a cluster, which would listen on all interfaces.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def bare_cluster(setup_worker: str | None, *, dashboard: bool, logs: bool) -> Iterator[None]:
    """A cluster that is started meanwhile has no processes that its ranks do not need.

    Those are the autoscaler's monitor and, unless they are asked for, the dashboard and the reader of logs; the agent
    of the dashboard, without which no node starts, has its smallest form.
    Without its names: a sweep fails with AttributeError when it starts a cluster, which would start a second later.

    Args:
        setup_worker: path of the program that starts each worker process; None for Ray's.
        dashboard: whether it has the dashboard.
        logs: whether what workers print reaches this process.
    """
    from ray._private import parameter, services, utils

    params, start_api_server, error = (
        parameter.RayParams,
        services.start_api_server,
        utils.get_dashboard_dependency_error,
    )

    def bare(**options: Any) -> Any:
        return params(**options, no_monitor=True, include_log_monitor=logs, setup_worker_path=setup_worker)

    parameter.RayParams = bare
    if not dashboard:
        services.start_api_server = lambda *_, **__: (None, None)
        utils.get_dashboard_dependency_error = lambda: ImportError("not wanted")
    try:
        yield
    finally:
        parameter.RayParams, services.start_api_server = params, start_api_server
        utils.get_dashboard_dependency_error = error


def worker_environment() -> dict[str, str]:
    """What Ray's C++ reads of a worker process when Ray is imported: its job, and the process with which it ends.

    A worker without a job takes any. The process is the raylet's by default, which is not known so early; here it is
    this one.
    Without it: worker processes of a template end at once, and no rank joins.
    """
    return {"RAY_JOB_ID": "ffffffff", "RAY_RAYLET_PID": str(os.getpid())}


def load_workers() -> None:
    """Import what Ray's worker processes need, in the process of which they will be copies.

    Ray's C++ makes its random numbers from what it has read from the system at the first use. If that is before the
    copies are made, two workers make the same ids, and Ray ends one of them. What makes an id when it is imported is a
    class of an actor, so those are made otherwise here.

    Raises:
        RuntimeError: copies would make the same ids; there is no template then, and each worker imports for itself.
    """
    import ray.actor

    actor_class_id = ray.actor.ActorClassID
    ray.actor.ActorClassID = SimpleNamespace(from_random=lambda: actor_class_id(os.urandom(actor_class_id.size())))
    for module in (
        "dmls_ray.cluster.worker",
        "dmls_ray.cluster.worker_group",
        "dmls_ray.cluster.tune.run_jobs",
        "ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator",
        "ray.train.v2._internal.execution.controller",
    ):
        importlib.import_module(module)
    ray.actor.ActorClassID = actor_class_id
    gc.freeze()
    if _id_of_copy() == _id_of_copy():
        raise RuntimeError("copies of a process that has imported Ray make the same ids")


def _id_of_copy() -> bytes:
    """A random id that a copy of this process makes."""
    import ray

    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, ray.NodeID.from_random().binary())
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader, "rb") as file:
        return file.read()


def be_worker(*arguments: str) -> None:
    """Be one of Ray's worker processes, in a copy of the process that has called `load_workers`.

    Args:
        arguments: those of Ray's program that sets up a worker.
    """
    import argparse
    import runpy

    from ray._private.runtime_env.context import RuntimeEnvContext
    from ray.core.generated.common_pb2 import Language

    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--serialized-runtime-env-context", default="{}")
    parser.add_argument("--language", default="PYTHON")
    given, words = parser.parse_known_args(arguments)
    wanted = RuntimeEnvContext.deserialize(given.serialized_runtime_env_context)
    plain = RuntimeEnvContext(env_vars=wanted.env_vars)
    if given.language != "PYTHON" or wanted.serialize() != plain.serialize():
        wanted.exec_worker(words, Language.Value(given.language))
    os.environ.update(wanted.env_vars)
    know_templates(os.environ.pop(TEMPLATES))
    read_token_mode()
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def read_token_mode() -> None:
    """Let Ray's C++ know whether tokens are sent, which it has read from the environment when it was imported.

    Without it: a copy of a template is refused by the cluster that was started after the template.
    """
    import ray._raylet

    if mode := os.environ.get("RAY_AUTH_MODE"):
        ray._raylet.Config.initialize(json.dumps({"AUTH_MODE": mode}).encode())


def setup_worker_program() -> str:
    """Path of Ray's program that sets up a worker process."""
    from ray._private import node, ray_constants

    return os.path.join(os.path.dirname(node.__file__), "workers", ray_constants.SETUP_WORKER_FILENAME)


def template_of_node(folder: str, node_id: str) -> Path:
    """The folder of the sockets of the templates of a node, as `program_of_copies` has it.

    Args:
        folder: a path that all nodes know.
        node_id: Ray's id of the node.
    """
    return Path(f"{folder}-{node_id[:8]}")


_START_COPY = f"""
python=$(tr '\\0' '\\n' < /proc/$PPID/cmdline | sed -n 's/^--python_worker_command=\\([^ ]*\\).*/\\1/p')
words="$*"
node=$(printf %.8s "${{words##*--node-id=}}")
ask='import sys; from dmls_ray.cluster.start_worker import has_asked_there; sys.exit(not has_asked_there())'
{TEMPLATES}="$0-$node" "$python" -Pc "$ask" "$@" || exec "${{python:-python3}}" "$@"
"""
"""Asks for a copy, or becomes Ray's own program. Its parent is the raylet, whose command line names the Python of the
node; its own has the id of the node."""


def program_of_copies(folder: str) -> str:
    """What Ray starts in place of Python for each worker process of a cluster that was joined: one that asks the
    template of the node for a copy. Without one there, the worker starts as it would without this program.

    Without its names: no worker starts as a copy.

    Args:
        folder: as of `template_of_node`.
    """
    return f"sh -c {shlex.quote(_START_COPY)} {shlex.quote(folder)}"


def prestart_autoscaling_coordinator() -> None:
    """Start, early, the actor that Train's controller waits for before it places its workers.

    Ray starts it on demand; started while PyTorch still loads in this process, it is there when it is needed.
    Without it: a sweep starts a second later.
    """
    with suppress(ImportError):
        from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
            get_or_create_autoscaling_coordinator,
        )

        get_or_create_autoscaling_coordinator()


def draining_nodes() -> set[str]:
    """Ray's ids of the nodes that will be preempted, as whoever runs the cluster has told Ray.

    Without it: a run on such a node goes on until the node is gone, and is run again then.
    """
    from ray._private.worker import global_worker

    return set(global_worker.gcs_client.get_draining_nodes())


def free_places_of(actor: Any) -> None:
    """Free what an actor holds of the cluster by placement groups.

    Ray keeps those of an actor that was killed until its job ends; Train ends only those whose ranks have started.
    Without it: the next ranks of the same process wait for cores that nobody uses.
    """
    import ray
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import PlacementGroupTableData
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    for entry in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(entry)
        is_removed = group.state == PlacementGroupTableData.REMOVED
        if group.creator_actor_id == actor._actor_id.binary() and not is_removed:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))


def ask_head(address: str, timeout: float) -> list[Any]:
    """The nodes of a cluster that are alive.

    Without it: Ray itself finds out, in up to a minute and many lines.

    Raises:
        AuthenticationError: a token is to be sent, and there is none.
        grpc.RpcError: the answer is no cluster's, or it requires another token.
    """
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import gcs_service_pb2 as messages
    from ray.core.generated import gcs_service_pb2_grpc as services
    from ray.core.generated.gcs_pb2 import GcsNodeInfo

    channel = init_grpc_channel(address, options=[("grpc.enable_http_proxy", 0)])
    try:
        nodes = services.NodeInfoGcsServiceStub(channel).GetAllNodeInfo(
            messages.GetAllNodeInfoRequest(), timeout=timeout
        )
    finally:
        channel.close()
    return [node for node in nodes.node_info_list if node.state == GcsNodeInfo.ALIVE]
