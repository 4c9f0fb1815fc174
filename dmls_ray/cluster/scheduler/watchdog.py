"""`watch`: ends runs that take too long, and ranks that hang."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from dmls_ray.cluster.scheduler.attempt import Attempt

if TYPE_CHECKING:
    from dmls_ray.cluster.scheduler.dispatcher import Dispatcher

PEER_NOTIFY_DELAY_S = 2.0
"""Delay before surviving ranks are notified that a peer is gone; TCP reports nothing when a host is cut off."""

PEER_KILL_DELAY_S = 8.0
"""Delay before the processes of surviving ranks are killed, if the notice did not help."""

DEATH_DETECTION_TIMEOUT_S = 20.0
"""Upper bound on how long Ray takes to report a dead process, on a busy machine too."""

CHECK_INTERVAL_S = 0.5
"""Interval in which the clocks of runs and ranks are looked at."""


async def watch(dispatcher: Dispatcher) -> None:
    """Check the clocks of runs and ranks until no run is left: a rank that hangs reports nothing to Ray."""
    while dispatcher.queue or dispatcher.attempts:
        for attempt in list(dispatcher.attempts.values()):
            if reason := attempt.overdue_reason(dispatcher.limits):
                attempt.overdue = reason
                for name in attempt.pending:
                    _kill(dispatcher, name)
            else:
                _unblock_survivors(dispatcher, attempt)
        _kill_hung_ranks(dispatcher)
        dispatcher.dispatch()
        await asyncio.sleep(CHECK_INTERVAL_S)


def _unblock_survivors(dispatcher: Dispatcher, attempt: Attempt) -> None:
    """End the wait of ranks that do not notice the loss of a peer.

    If a rank reports that a peer is gone and no rank is known to be lost, the network between them failed, perhaps
    for one side only.
    """
    lost_at = min(attempt.lost_at, attempt.missed_at + DEATH_DETECTION_TIMEOUT_S)
    since = time.monotonic() - lost_at
    if since > PEER_NOTIFY_DELAY_S and not attempt.interrupted:
        attempt.interrupted = True
        for name in attempt.pending:
            dispatcher.members.ranks[name].interrupt(tuple(attempt.lost_addresses))
    elif since > PEER_KILL_DELAY_S:
        for name in attempt.pending:
            _kill(dispatcher, name, was_waiting=bool(attempt.lost), reason=attempt.missed)


def _kill_hung_ranks(dispatcher: Dispatcher) -> None:
    """Kill ranks without a run that have not asked for work for stall_timeout; Train replaces them."""
    if dispatcher.limits.stall_timeout is None:
        return
    since = time.monotonic() - dispatcher.limits.stall_timeout
    for name, rank in list(dispatcher.members.ranks.items()):
        if rank.attempt is None and rank.waiting is None and rank.free_since < since:
            _kill(dispatcher, name)


def _kill(dispatcher: Dispatcher, name: str, *, was_waiting: bool = False, reason: str = "") -> None:
    dispatcher.end_process(dispatcher.members.ranks[name].registration)
    dispatcher.lose(name, was_waiting=was_waiting, reason=reason)
