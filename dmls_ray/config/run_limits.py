"""`RunLimits`: how long a run may take, how often it is retried, and when a rank is replaced or a trial given up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Limits of runs. `Options` has each of these fields as a flag, with the same default."""

    max_retries: int = 1
    """Retries of a run that was killed or timed out."""
    run_timeout: float | None = None
    """Seconds that one attempt at a run may take; None: unlimited."""
    stall_timeout: float | None = 600.0
    """Seconds without progress of any rank after which a run is ended, and without a request for work after which an
    idle rank is replaced; None: unlimited."""
    wait_for_ranks: float = 60.0
    """Seconds that a run waits for ranks whose machine has left. If it is more than 600, also the seconds that a sweep
    waits for a full cluster."""
    give_up_after: int = 2
    """Equal failures of a trial in a row after which its further runs are skipped."""
    recycle_above_mib: float | None = None
    """Resident memory above which the process of a rank is replaced between two runs; None: never."""
