"""`BrokerSupervisor`: starts the broker, and starts another whenever it dies."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmls_ray.cluster.broker_client import actor_name, end_process, oom_kills_there
from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.run_limits import RunLimits


class BrokerSupervisor:
    """Keeps one broker alive.

    Args:
        name: name of the worker group; each broker has its own name, see `actor_name`.
        expected: returns the ranks of each trainer that a new broker is to expect, and the trainers among them that
            runs need not wait for.
        exclusive: whether runs go one at a time.
        limits: timeouts, retries and the memory of ranks.
        ended: set when the sweep is over.
    """

    def __init__(
        self,
        name: str,
        *,
        expected: Callable[[], tuple[dict[str, int], list[str]]],
        exclusive: bool,
        limits: RunLimits,
        ended: threading.Event,
    ) -> None:
        self._name, self._expected, self._ended = name, expected, ended
        self._exclusive, self._limits = exclusive, limits
        self._actor = self._start_broker(0)
        self._thread = threading.Thread(target=self._restart_dead_brokers, daemon=True, name="broker")
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the broker, and wait this many seconds for the thread to notice."""
        ray.kill(self._actor)
        self._thread.join(timeout)

    def _start_broker(self, generation: int) -> Any:
        expected, joining_later = self._expected()
        # On this machine, so that it does not leave with another.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(Broker).options(
            name=actor_name(self._name, generation),
            namespace=NAMESPACE,
            num_cpus=0,
            max_concurrency=10_000,
            scheduling_strategy=here,
        )
        return actor.remote(
            expected,
            joining_later=joining_later,
            exclusive=self._exclusive,
            limits=self._limits,
            end_process=end_process,
            oom_kills_on=oom_kills_there,
        )

    def _restart_dead_brokers(self) -> None:
        for generation in itertools.count(1):
            try:
                ray.get(self._actor.wait_for_death.remote())
            except SystemExit:
                return  # raised by ray.shutdown() in a waiting thread
            except ray.exceptions.RayActorError:
                if self._ended.is_set():
                    return
                self._actor = self._start_broker(generation)
            except ray.exceptions.RayError:
                return  # Ray itself is gone
