"""`BrokerSupervisor`: starts the broker, and starts another whenever it dies."""

from __future__ import annotations

import itertools
import threading
import time
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
from dmls_ray.util.text import first_line

CHECK_INTERVAL_S = 10.0
"""Interval in which the broker is asked whether it answers."""

ANSWER_TIMEOUT_S = 60.0
"""How long it may take to answer; then another takes its place."""

RETRY_INTERVAL_S = 0.5
"""Seconds until a broker that the network hides is looked for again."""

EARLY_DEATH_S = 90.0
"""A broker that ends sooner may have died of its start, or was ended since it never answered."""

MAX_EARLY_DEATHS = 4
"""Such deaths in a row after which no other broker is started."""


class BrokerSupervisor:
    """Keeps one broker alive.

    Args:
        name: name of the worker group; each broker has its own name, see `actor_name`.
        expected: returns the trainers that a new broker is to expect.
        exclusive: whether runs go one at a time.
        limits: timeouts, retries and the memory of ranks.
        ended: set when the sweep is over.
        controllers: returns the actors that control trainers, by trainer, as far as they are known here.
        has_failed: called once, from another thread, with the reason why there will be no other broker.
        notify: receives a line about a broker that does not answer.
    """

    def __init__(
        self,
        name: str,
        *,
        expected: Callable[[], dict[str, ExpectedTrainer]],
        exclusive: bool,
        limits: RunLimits,
        ended: threading.Event,
        controllers: Callable[[], dict[str, Any]],
        has_failed: Callable[[str], None],
        notify: Callable[[str], None],
    ) -> None:
        self._name, self._expected, self._ended = name, expected, ended
        self._controllers, self._has_failed = controllers, has_failed
        self._notify = notify
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
            controllers=self._controllers(),
            exclusive=self._exclusive,
            limits=self._limits,
            end_process=end_process_there,
            oom_kills_on=oom_kills_there,
            stop_controller=ray.kill,
        )

    def _restart_dead_brokers(self) -> None:
        try:
            self._keep_one_alive()
        except SystemExit:
            return  # raised by ray.shutdown() in a waiting thread
        except Exception as error:  # noqa: BLE001 - whatever it is, ranks would ask for another broker for ever
            if not self._ended.is_set():
                self._has_failed(f"The broker died, and no other can be started ({first_line(error)})")

    def _keep_one_alive(self) -> None:
        """Return when the sweep is over.

        Raises:
            Exception: no other broker can be started.
        """
        early = 0
        for generation in itertools.count(1):
            started = time.monotonic()
            try:
                _wait_for_death(self._actor, self._ended, self._notify)
                return
            except ray.exceptions.RayActorError:
                if self._ended.is_set():
                    return
                early = early + 1 if time.monotonic() - started < EARLY_DEATH_S else 0
                if early == MAX_EARLY_DEATHS:
                    raise
                self._actor = self._start_broker(generation)


def _wait_for_death(actor: Any, ended: threading.Event, notify: Callable[[str], None]) -> None:
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
            # Its process is stopped, and all that call it would wait.
            notify(f"The broker did not answer for {ANSWER_TIMEOUT_S:g} s; another takes its place.")
            ray.kill(actor)
        except ray.exceptions.ActorUnavailableError:
            # The network fails, and the broker lives: another would not know what this one does.
            if not ended.wait(RETRY_INTERVAL_S):
                death = actor.wait_for_death.remote()
