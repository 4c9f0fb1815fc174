"""`watch`: ends runs that take too long, ranks that hang, and the wait for ranks that do not come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dmls_ray.cluster.scheduler.attempt import Attempt, now
from dmls_ray.cluster.scheduler.membership import Trainer

if TYPE_CHECKING:
    from dmls_ray.cluster.scheduler.dispatcher import Dispatcher

PEER_KILL_DELAY_S = 8.0
"""Delay before surviving ranks are killed that wait for a lost one, of whose end TCP (a host without power) or NCCL
report nothing."""

DEATH_DETECTION_TIMEOUT_S = 20.0
"""Upper bound on how long Ray takes to report a dead process, on a busy machine too."""

CHECK_INTERVAL_S = 0.5
"""Interval in which the clocks of runs and ranks are looked at."""


async def watch(dispatcher: Dispatcher) -> None:
    """Check all clocks until no run is left: neither a rank that hangs nor one that is missing reports anything."""
    try:
        while dispatcher.queue or dispatcher.attempts:
            _check(dispatcher)
            dispatcher.dispatch()
            await asyncio.sleep(CHECK_INTERVAL_S)
    except Exception as error:
        # Without its clocks the scheduler might wait for ever.
        dispatcher.abort(f"the scheduler failed: {type(error).__name__}: {error}")
        raise


def _check(dispatcher: Dispatcher) -> None:
    for attempt in list(dispatcher.attempts.values()):
        if reason := attempt.overdue_reason(dispatcher.limits):
            attempt.overdue = reason
            for name in attempt.pending:
                _kill(dispatcher, name)
        else:
            _end_survivors(dispatcher, attempt)
    _kill_hung_ranks(dispatcher)
    for name, trainer in list(dispatcher.members.trainers.items()):
        _check_trainer(dispatcher, name, trainer)


def _check_trainer(dispatcher: Dispatcher, name: str, trainer: Trainer) -> None:
    """End the wait for missing ranks of a trainer. No run waits for one that is arriving: it may take its time."""
    if trainer.missing_since is None or trainer.is_arriving:
        return
    timeout = trainer.timeout(dispatcher.limits.wait_for_ranks)
    if now() - trainer.missing_since <= timeout:
        return
    count = f"{trainer.expected.ranks - trainer.present} of {trainer.expected.ranks} ranks{trainer.where}"
    if trainer.has_served:
        dispatcher.give_up(name, f"{count} did not come back within {timeout:g} s", is_lost=True)
    else:
        reason = f"{count} did not start within {timeout:g} s; a longer --wait-for-ranks waits for a full cluster"
        dispatcher.give_up(name, reason)


def _end_survivors(dispatcher: Dispatcher, attempt: Attempt) -> None:
    """End ranks that do not notice the loss of a peer.

    If a rank reports that a peer is gone and no rank is known to be lost, the network between them failed, perhaps
    for one side only.
    """
    lost_at = min(attempt.lost_at, attempt.missed_at + DEATH_DETECTION_TIMEOUT_S)
    if now() - lost_at > PEER_KILL_DELAY_S:
        for name in attempt.pending:
            _kill(dispatcher, name, was_waiting=bool(attempt.lost), reason=attempt.missed)


def _kill_hung_ranks(dispatcher: Dispatcher) -> None:
    """Kill ranks without a run that have not asked for work for stall_timeout; Train replaces them."""
    if dispatcher.limits.stall_timeout is None:
        return
    since = now() - dispatcher.limits.stall_timeout
    for name, rank in list(dispatcher.members.ranks.items()):
        if rank.attempt is None and rank.waiting is None and rank.free_since < since:
            _kill(dispatcher, name)


def _kill(dispatcher: Dispatcher, name: str, *, was_waiting: bool = False, reason: str = "") -> None:
    dispatcher.kill(dispatcher.members.ranks[name].registration)
    dispatcher.lose(name, was_waiting=was_waiting, reason=reason)
