"""The account of several ranks against one: how much longer a step takes, and what takes it."""

from __future__ import annotations

from typing import Any

from dmls_ray.analysis.table.row import Row
from dmls_ray.analysis.why.step import COMPUTE, slower_rank, step_parts

_COMPUTING = "computing"
_CONTENTION = "contention for cores or memory"
_GROUPS = {
    "communication not overlapped with compute": ("exposed_comm_ms",),
    "waiting for the slowest rank": ("waiting_ms",),
    _COMPUTING: COMPUTE,
    "waiting for data": ("data_wait_ms",),
    "the rest": ("rest_ms",),
}
"""Words -> parts of a step."""
_NAMED_FROM = 0.1
"""Share of the change of a step from which on a part is named."""
_MOST = 3


def account_of_ranks(row: Row, base: Row) -> str:
    """Where the difference between the steps of two trials goes, in milliseconds.

    Empty where it is not known, or no block has both on one machine and device with the same versions.

    `225 steps of 3.4 ms instead of 450 of 1.3 ms; per step +2.1 ms communication not overlapped with compute`. What
    computing takes longer with as many samples a rank is contention where all ranks are on one machine: they share
    cores, caches and memory.

    Args:
        row: the trial with more ranks.
        base: the trial with fewer.
    """
    if not row.comparisons.common_blocks(row, base, timed=True):
        return ""
    after, before = step_parts(row), step_parts(base)
    if after is None or before is None or not after.parts["forward_ms"]:
        return ""  # of a user-defined function, the parts are not known
    decimals = _decimals(after.step_ms)
    changes = {words: sum(after.parts[name] - before.parts[name] for name in names) for words, names in _GROUPS.items()}
    on_one_machine = not any(run.machine.get("beside") for run in (*row.timed, *base.timed))
    if changes[_COMPUTING] > 0 and on_one_machine and _samples_of_rank(row) == _samples_of_rank(base):
        changes = {_CONTENTION if words == _COMPUTING else words: change for words, change in changes.items()}
    total = sum(map(abs, changes.values()))
    largest = sorted(changes.items(), key=lambda item: -abs(item[1]))[:_MOST]
    large = [(words, change) for words, change in largest if abs(change) >= _NAMED_FROM * total > 0]
    named = [f"{change:+.{decimals}f} ms {words}" for words, change in large]
    left = after.step_ms - before.step_ms - sum(change for _, change in large)
    if named and abs(left) >= 0.5 * 10.0**-decimals:
        named.append(f"{left:+.{decimals}f} ms other")
    late = slower_rank(row)
    slower = f"; rank {late[0]} is slower than the others by {late[1]:.{decimals}f} ms" if late else ""
    ms, base_ms = f"{after.step_ms:.{decimals}f} ms", f"{before.step_ms:.{decimals}f} ms"
    steps, base_steps = (item.counted[0].metrics.get("steps") for item in (row, base))
    if steps and base_steps and steps != base_steps:
        text, each = f"{steps:,} steps of {ms} instead of {base_steps:,} of {base_ms}", "; per step "
    else:
        text, each = f"an average step takes {ms} instead of {base_ms}", ": "
    return f"{text}{each if named else ''}{', '.join(named)}{slower}"


def _samples_of_rank(row: Row) -> tuple[Any, Any]:
    config = row.records[0].config
    return config.get("batch_per_rank"), config.get("accum_steps")


def _decimals(value: float) -> int:
    """Decimals that keep two digits or more."""
    return 0 if value >= 100 else 1 if value >= 1 else 2
