"""What is said before a sweep about versions of the user's code and data: which runs are made again, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dmls_ray.analysis.words import count_noun
from dmls_ray.config.grid import Plan, Run
from dmls_ray.execution.identities import Identities
from dmls_ray.records.model import RunRecord
from dmls_ray.records.versions import describe_earlier, edited_names, list_files


def describe_repeated(pending: Sequence[Run], records: Iterable[RunRecord], identities: Identities) -> str:
    """The line about runs that are made again since the user's code or data have changed; empty without any."""
    earlier = _earlier_records(pending, records, identities)
    if not earlier:
        return ""
    what = describe_earlier(earlier.values(), _present(pending, identities))
    verbs = ("does", "is") if len(earlier) == 1 else ("do", "are")
    return f"{count_noun(len(earlier), 'run')} of {what} {verbs[0]} not count and {verbs[1]} made again."


def reasons_to_repeat(
    pending: Sequence[Run], records: Iterable[RunRecord], identities: Identities
) -> Mapping[str, str]:
    """By run_id, why a run that has ended before is made again: `m.py has changed`."""
    runs = {run.run_id: run for run in pending}
    reasons = {}
    for run_id, record in _earlier_records(pending, records, identities).items():
        names = edited_names([record], _present([runs[run_id]], identities)) or ["the code"]
        reasons[run_id] = f"{list_files(names)} {'has' if len(names) == 1 else 'have'} changed"
    return reasons


def describe_nothing_to_run(plan: Plan, records: Iterable[RunRecord], identities: Identities, reason: str = "") -> str:
    """The line of a call of which every run has ended before; after an undo, with what is as it was.

    Args:
        plan: the runs.
        records: what the results folder holds.
        identities: the present code and data of each run.
        reason: why runs of the plan that are not there are not wanted; empty if all are there.
    """
    if reason:
        return f"Nothing to run. {reason}"
    records = list(records)
    count = len({run.run_id for run in plan.runs} & {record.run_id for record in records})
    earlier = _earlier_records(plan.runs, records, identities)
    names = edited_names(earlier.values(), _present(plan.runs, identities))
    of_version = f" of the present version of {list_files(names)}" if names else ""
    runs = "1 run" if count == 1 else f"all {count:,} runs"
    return f"Nothing to run: {runs}{of_version} {'is' if count == 1 else 'are'} there."


def _earlier_records(runs: Sequence[Run], records: Iterable[RunRecord], identities: Identities) -> dict[str, RunRecord]:
    """By run_id, the last record of each run that has ended with other code or data: a run has a record for each."""
    by_id = {run.run_id: run for run in runs}
    return {
        record.run_id: record
        for record in records
        if record.run_id in by_id
        and record.outcome.is_final()
        and not identities.of(by_id[record.run_id]).is_of(record)
    }


def _present(runs: Iterable[Run], identities: Identities) -> Mapping[str, str]:
    now = identities.together(runs)
    return {**now.code, **now.data}
