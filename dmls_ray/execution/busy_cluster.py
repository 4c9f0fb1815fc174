"""What is said where the ranks of a sweep have to wait for other jobs of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmls_ray.config.runtime import RuntimeConfig

if TYPE_CHECKING:
    from dmls_ray.cluster.resources import Resources


def describe_wait(configs: Sequence[RuntimeConfig], resources: Resources, wait_for_ranks: float) -> list[str]:
    """A line for each kind of resource that is busy: Ray itself would wait in silence.

    Args:
        configs: the configurations that are to run.
        resources: all of the cluster's.
        wait_for_ranks: how long a run waits for its ranks, in seconds.
    """
    from dmls_ray.cluster.resources import free_resources
    from dmls_ray.cluster.scheduler.membership import START_TIMEOUT_S

    free, lines = free_resources(), []
    wait_s = max(START_TIMEOUT_S, wait_for_ranks)
    for device, kind in (("cpu", "CPU"), ("cuda", "GPU")):
        ranks = max((item.world_size for item in configs if resources.device_of(item) == device), default=0)
        if free.get(kind, 0) < min(ranks, resources.cores if device == "cpu" else resources.gpus):
            lines.append(
                f"The cluster has {free.get(kind, 0):g} {kind}s free and the ranks need {ranks}: they start when other "
                f"jobs have ended. The sweep waits {wait_s:g} s for it (--wait-for-ranks)."
            )
    return lines
