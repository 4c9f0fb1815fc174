"""`BrokerSupervisor`: starts the broker, and starts another whenever it dies."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dmls_ray.cluster.broker_client import actor_name
from dmls_ray.cluster.connect import NAMESPACE
from dmls_ray.cluster.messages import ExpectedTrainer
from dmls_ray.cluster.processes import end_process_there, oom_kills_there
from dmls_ray.cluster.scheduler.broker import Broker
from dmls_ray.config.run_limits import RunLimits

CHECK_INTERVAL_S = 10.0
"""Interval in which the broker is asked whether it answers."""

ANSWER_TIMEOUT_S = 60.0
"""How long it may take to answer; then another takes its place."""

RETRY_INTERVAL_S = 0.5
"""Seconds until a broker that the network hides is looked for again."""


class BrokerSupervisor:
    """Keeps one broker alive.

    Args:
        name: name of the worker group; each broker has its own name, see `actor_name`.
        expected: returns the trainers that a new broker is to expect.
        exclusive: whether runs go one at a time.
        limits: timeouts, retries and the memory of ranks.
        ended: set when the sweep is over.
    """

    def __init__(
        self,
        name: str,
        *,
        expected: Callable[[], dict[str, ExpectedTrainer]],
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
            self._expected(),
            exclusive=self._exclusive,
            limits=self._limits,
            end_process=end_process_there,
            oom_kills_on=oom_kills_there,
            stop_controller=ray.kill,
        )

    def _restart_dead_brokers(self) -> None:
        for generation in itertools.count(1):
            try:
                _wait_for_death(self._actor, self._ended)
                return
            except SystemExit:
                return  # raised by ray.shutdown() in a waiting thread
            except ray.exceptions.RayActorError:
                if self._ended.is_set():
                    return
                self._actor = self._start_broker(generation)
            except ray.exceptions.RayError:
                return  # Ray itself is gone


def _wait_for_death(actor: Any, ended: threading.Event) -> None:
    """Wait until a broker is gone or the sweep is over, and end a broker that does not answer.

    Raises:
        RayActorError: it is gone.
    """
    death = actor.wait_for_death.remote()
    # After ray.shutdown(), each call would start or join another cluster: Ray connects by itself.
    while not ended.is_set():
        try:
            if not ray.wait([death], timeout=CHECK_INTERVAL_S)[0]:
                if not ended.is_set():
                    ray.get(actor.is_alive.remote(), timeout=ANSWER_TIMEOUT_S)
                continue
            ray.get(death)
        except ray.exceptions.GetTimeoutError:
            ray.kill(actor)  # its process is stopped, and all that call it would wait
        except ray.exceptions.ActorUnavailableError:
            # The network fails, and the broker lives: another would not know what this one does.
            if not ended.wait(RETRY_INTERVAL_S):
                death = actor.wait_for_death.remote()
