"""`RunLimits`: how long a run may take, how often it is retried, and when a trial is given up."""

from __future__ import annotations

from dataclasses import dataclass

from dmls_ray.config.fields import Count, NonNegativeNumber, PositiveNumber, WholeNumber, setting


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Limits of runs. They are options of a sweep: `Options` inherits them."""

    max_retries: WholeNumber = setting(1, group="limits")
    """How often a run that was killed or timed out is started again."""
    run_timeout: PositiveNumber | None = setting(None, group="limits")
    """Seconds that an attempt at a run may take; without it, no limit."""
    stall_timeout: PositiveNumber | None = setting(600.0, group="limits")
    """Seconds without an optimizer step, a test batch or an event after which a run is ended, and without a request for
    work after which an idle rank is replaced; none: no limit."""
    wait_for_ranks: NonNegativeNumber = setting(60.0, group="limits")
    """Seconds that a run waits for ranks whose machine has left, before it is skipped; above 600, also how long a sweep
    waits for a full cluster."""
    give_up_after: Count = setting(2, group="limits")
    """Number of equal failures of a trial in a row after which its further repeats are skipped."""
