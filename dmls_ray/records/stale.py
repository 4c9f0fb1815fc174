"""Stale runs: those of a results folder that were made with other code or data of the user than the last sweep had.

Edited code and data make other trials. A reader of the folder, which imports no code of the user, leaves those of
earlier edits out: `sweep.json` has the digest of each source file and data set at each call of the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.config.identity import OF_FUNCTION, digest
from dmls_ray.records.model import RunRecord, seconds_of_run
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.digests import AND_IMPORTS

FIELD = "code"
"""Field of a configuration, and column, that distinguishes current from stale trials where both are shown."""

CURRENT = "current"
"""Its value for current trials; stale ones have a digest of their code and data."""

_SHOWN = 3
"""Names of files and data sets that a line lists."""


@dataclass(frozen=True)
class SplitRecords:
    """The records of a folder, by whether they are stale."""

    current: Sequence[RunRecord]
    stale: Sequence[RunRecord]
    newest: Mapping[str, str]
    """The last digest of each source file and data set."""

    def distinguished(self) -> list[RunRecord]:
        """All records; the field `code` of their configuration says which code and data they had."""
        codes = [digest({"code": record.code, "data": record.data})[:8] for record in self.stale]
        codes += [CURRENT] * len(self.current)
        configs: dict[tuple[int, str], dict[str, Any]] = {}
        records = []
        for record, code in zip((*self.stale, *self.current), codes, strict=True):
            config = configs.setdefault((id(record.config), code), {**record.config, FIELD: code})
            records.append(record.replace(config=config))
        return records


def split_stale(records: Iterable[RunRecord], sessions: Iterable[Mapping[str, Any]]) -> SplitRecords:
    """Split the records of a folder.

    Args:
        records: in the order in which they were written.
        sessions: the calls that sweep.json lists. They know of an edit that was undone, and that needed no new run.
    """
    records = list(records)
    newest: dict[str, str] = {}
    for record in records:
        newest |= record.code
        newest |= record.data
    # A copied folder has the sessions of another one after its own.
    for session in sorted(sessions, key=lambda session: str(session.get("started_at", ""))):
        newest |= session.get("code", {})
        newest |= session.get("data", {})
    stale = [record for record in records if changed_names(record, newest)]
    stale_ids = {record.run_id for record in stale}
    current = [record for record in records if record.run_id not in stale_ids]
    return SplitRecords(current, stale, newest)


def changed_names(record: RunRecord, newest: Mapping[str, str]) -> list[str]:
    """The source files and data sets of which a record has another digest than the newest."""
    digests = {**record.code, **record.data}
    return [name for name, digest in digests.items() if newest.get(name, digest) != digest]


def describe_stale(records: Iterable[RunRecord], newest: Mapping[str, str]) -> str:
    """A line about the records with other digests than the newest; empty if there are none."""
    count = 0
    names: dict[str, None] = {}
    for record in records:
        changed = changed_names(record, newest)
        count += bool(changed)
        names |= dict.fromkeys(changed)
    if not count:
        return ""
    # The entry of a module with its imports says something only where a file was added or removed.
    files = [name for name in names if not name.endswith(AND_IMPORTS)] or [*names]
    texts = [*dict.fromkeys(name.removesuffix(OF_FUNCTION) for name in files)]
    if len(texts) > _SHOWN:
        texts[_SHOWN:] = ["..."]
    runs = "1 run" if count == 1 else f"{count:,} runs"
    return f"{runs} of other versions of {', '.join(texts)} left out; --stale includes them."


def replaces(later: RunRecord, earlier: RunRecord) -> bool:
    """Whether a later record of the same run takes the place of an earlier one.

    A failure does not take the place of an answer: of two sweeps at one place, one may have ended the run, and which of
    their records is the later may depend on the clocks of two machines. Nor does a run that shared the machine take the
    place of a benchmark's answer, whose times were measured alone. An answer that did not suffice gives way: that of a
    shared machine to a benchmark, and that of a run which a search has stopped early.
    """
    if not earlier.outcome.is_final():
        return True
    worth, before = (_WORTH.get(record.mode, 0) for record in (later, earlier))
    if later.outcome.is_final():
        return worth >= before
    return worth > before or earlier.is_stopped


def after_failure(record: RunRecord, earlier: RunRecord) -> RunRecord:
    """A record with an earlier one of its run as an attempt, if the same code has failed there."""
    if earlier.outcome is not Outcome.ERROR or earlier.code != record.code:
        return record
    failed = {"outcome": earlier.outcome.value, "reason": earlier.reason, "seconds": seconds_of_run(earlier)}
    attempts = [*earlier.earlier_attempts, failed, *record.earlier_attempts]
    return record.replace(attempts=record.attempts + earlier.attempts, earlier_attempts=attempts)


_WORTH = {"search": 0, "shared": 1, "bench": 2}
"""Mode of a record -> its place among those of one run: runs of a search may be stopped early, and shared ones have no
times."""
