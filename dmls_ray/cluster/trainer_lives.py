"""`run_trainer`: runs a TorchTrainer until its ranks have left, and another whenever its controller dies."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ray

from dmls_ray.cluster.broker_client import BrokerClient
from dmls_ray.cluster.messages import ExpectedTrainer
from dmls_ray.util.text import first_line


def run_trainer(
    broker: BrokerClient,
    trainer: str,
    expected: Callable[[], ExpectedTrainer],
    *,
    fit: Callable[[str], None],
    is_over: Callable[[], bool],
    rename: Callable[[str], bool],
) -> str:
    """Run a trainer, and its successors.

    Args:
        broker: knows the trainer, and decides whether another is started.
        trainer: its name.
        expected: what the broker is to expect of the next one.
        fit: runs the trainer with a name until its ranks have left.
        is_over: whether its ranks are needed no more.
        rename: takes the name of the next trainer; returns whether it is to start.

    Returns:
        Why the ranks cannot serve; empty if they have served to the end.
    """
    first = trainer
    for life in itertools.count(1):
        try:
            fit(trainer)
        except SystemExit:
            return ""  # raised by ray.shutdown() in a waiting thread
        except ray.exceptions.RayActorError:
            if is_over():
                return ""
            before, trainer = trainer, f"{first}.{life}"
            if not rename(trainer):
                return ""
            if reason := _refusal(broker, "replace_trainer", before, trainer, expected()):
                return reason
        except Exception as error:  # noqa: BLE001 - whatever it is, waiting runs must be ended
            if is_over():
                return ""
            reason = f"Ray Train's worker group failed: {first_line(error)}"
            broker.call("trainer_failed", trainer, reason)
            return reason
        else:
            return "" if is_over() else _refusal(broker, "refusal", trainer)
    raise AssertionError("there is always a next life")


def _refusal(broker: BrokerClient, *call: object) -> str:
    reason: str = broker.call(*call)  # type: ignore[arg-type]
    return reason
