"""`JoinedCluster`: what `dmls-ray up` holds on a cluster that was joined, a template on each of its nodes.

Ray's own processes are the cluster's. A node that joins later has no template: its workers start without one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmls_ray.cluster.compat import prestart_autoscaling_coordinator, template_of_node
from dmls_ray.cluster.head import HeadWatch
from dmls_ray.cluster.joining import check_machines, join_cluster
from dmls_ray.cluster.resources import cluster_resources
from dmls_ray.cluster.templates import ClusterTemplates, take_templates
from dmls_ray.util.errors import ClusterError
from dmls_ray.util.files import TemporaryFolder
from dmls_ray.util.template_request import WORKERS
from dmls_ray.util.text import first_line

_END_TIMEOUT_S = 10.0
"""How long the templates of a node may take to end."""


class JoinedCluster:
    """The cluster, with templates on all nodes that it has now. They end with this process.

    Args:
        address: of its head.
        options: further ones of ray.init.

    Raises:
        ClusterError: it cannot be joined, or a node cannot import what ranks need.
    """

    def __init__(self, address: str, **options: Any) -> None:
        templates = take_templates()
        if templates is None:
            raise ClusterError("dmls-ray up needs Linux.")
        self.templates = templates
        """Those of the processes of commands, on this machine."""
        self.parts: Mapping[str, psutil.Process] = {}
        """As of `LocalCluster`: it goes on without its processes on this machine."""
        join_cluster(address, **options)
        self._lost: list[str] = []
        self._head = HeadWatch(ray.get_runtime_context().gcs_address, self._lost.append)
        resources = cluster_resources()
        check_machines(resources)
        # It outlives the command that starts it, and so may not be a copy of a template.
        prestart_autoscaling_coordinator()
        self._nodes = [_start_on(machine.node_id, str(templates.folder)) for machine in resources.machines]
        try:
            ray.get([node.wait_for.remote(WORKERS) for node in self._nodes])
        except ray.exceptions.RayError as error:
            raise ClusterError(f"A machine of the cluster has no templates ({first_line(error)}).") from error

    @property
    def is_whole(self) -> bool:
        """Whether its head answers."""
        return not self._lost

    def end_workers(self) -> None:
        """End the templates of the nodes, and their copies."""
        ray.wait([node.close.remote() for node in self._nodes], num_returns=len(self._nodes), timeout=_END_TIMEOUT_S)
        if not self.is_whole:
            os._exit(1)  # without its head, the connection to a cluster cannot be ended

    def remove(self) -> None:
        """End and remove what is left."""
        self.templates.close()


def _start_on(node_id: str, folder: str) -> Any:
    """Start the templates of a node."""
    there = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(num_cpus=0)(NodeTemplates).options(scheduling_strategy=there).remote(folder)


class NodeTemplates(ClusterTemplates):
    """The templates of the node that this actor is on. They end with it.

    Args:
        folder: as of `template_of_node`.
    """

    def __init__(self, folder: str) -> None:
        path = template_of_node(folder, ray.get_runtime_context().get_node_id())
        super().__init__({}, TemporaryFolder("", path.parent, name=path.name))
