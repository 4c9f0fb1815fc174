"""Which runs of a results folder are finished, and which runs of a plan are still to come."""

from __future__ import annotations

from collections.abc import Iterable

from dmls_ray.config.options import Options
from dmls_ray.records.model import RunRecord


def finished_run_ids(records: Iterable[RunRecord], options: Options) -> set[str]:
    """The runs that need not be run again.

    A run of a search counts for searches only, since its times were not measured alone. One that a search has stopped
    early does not count where nothing is to be stopped.
    """

    def counts(record: RunRecord) -> bool:
        if options.mode == "bench":
            return record.mode == "bench"
        return options.scheduler != "none" or record.stopped_epoch is None

    return {record.run_id for record in records if record.outcome.is_final() and counts(record)}
