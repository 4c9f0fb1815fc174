"""Versions of the user's code and data in one results folder: which runs are current, which are of an earlier version.

A folder records the version of each source file and data set that its last call had. A run that had another version of
any of them is an earlier run, which tables leave out. To see that, a reader of the folder imports no code of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dmls_ray.records.identity import OF_FUNCTION
from dmls_ray.records.model import RunRecord
from dmls_ray.util.importing import is_reference
from dmls_ray.util.source_digest import AND_IMPORTS, files_of

FIELD = "code_version"
"""Field of a configuration that distinguishes versions where all of them are shown."""

CURRENT = "current"
"""Its value for runs of the current version; earlier versions have numbers, from 1."""

VersionKey = tuple[str, frozenset[tuple[str, str]], frozenset[tuple[str, str]]]


def version_key(record: RunRecord) -> VersionKey:
    """What distinguishes the records of a folder: run, code and data."""
    return record.run_id, frozenset(record.code.items()), frozenset(record.data.items())


def replaces(later: RunRecord, earlier: RunRecord) -> bool:
    """Whether a later record of the same run and version takes the place of an earlier one.

    A failure does not take the place of an answer: of two sweeps at one place, one may have ended the run, and which of
    their records is the later may depend on the clocks of two machines. It does where the answer did not suffice: that
    of a search for a benchmark, and that of a run which a search has stopped early.
    """
    if later.outcome.is_final() or not earlier.outcome.is_final():
        return True
    return later.mode != earlier.mode or earlier.stopped_epoch is not None


@dataclass(frozen=True)
class Versions:
    """The records of a folder, by whether they are current."""

    current: Sequence[RunRecord]
    """One record a run."""
    earlier: Sequence[RunRecord]
    """Runs with an earlier version of the user's code or data, one record for each run and version."""
    newest: Mapping[str, str]
    """The last version of each source file and data set."""

    @cached_property
    def note(self) -> str:
        """A line about the runs that are left out; empty if there are none."""
        count = len(self.earlier)
        if not count:
            return ""
        are, them = ("is", "it") if count == 1 else ("are", "them")
        runs = "run" if count == 1 else "runs"
        what = describe_earlier(self.earlier, self.newest)
        return f"{count:,} {runs} of {what} {are} not shown; --stale includes {them}."

    def of(self, choose: Callable[[Sequence[RunRecord]], Sequence[RunRecord]]) -> Versions:
        """The records that `choose` returns of those of each version."""
        return Versions(choose(self.current), choose(self.earlier), self.newest)

    def previous(self) -> list[RunRecord]:
        """Of each trial, the runs of the last version before the current one."""
        last = {record.trial_id: version_key(record)[1:] for record in self.earlier}
        return [record for record in self.earlier if version_key(record)[1:] == last[record.trial_id]]

    def distinguished(self) -> list[RunRecord]:
        """All records; the field `code_version` of their configuration says which version they are of."""
        numbers: dict[tuple[Any, Any], int] = {}
        configs: dict[tuple[int, str], dict[str, Any]] = {}
        records: list[RunRecord] = []
        for record in (*self.earlier, *self.current):
            suffix, version = "", CURRENT
            if len(records) < len(self.earlier):
                number = numbers.setdefault(version_key(record)[1:], len(numbers) + 1)
                suffix, version = f"-v{number}", str(number)
            config = configs.setdefault((id(record.config), version), {**record.config, FIELD: version})
            trial_id = record.trial_id + suffix
            records.append(record.replace(trial_id=trial_id, run_id=f"{trial_id}-{record.repeat}", config=config))
        return records


_SHOWN = 3
"""Names of files and data sets that a line lists."""


def split_by_version(records: Iterable[RunRecord], sessions: Iterable[Mapping[str, Any]]) -> Versions:
    """Split the records of a folder.

    Args:
        records: in the order in which they were written.
        sessions: the calls that sweep.json lists. They know of a version that was restored, and that needed no new run.
    """
    records = list(records)
    newest: dict[str, str] = {}
    for item in records:
        if item.code or item.data:
            newest |= {**item.code, **item.data}
    for session in sessions:
        newest |= {**session.get("code", {}), **session.get("data", {})}
    if not newest:
        return Versions(records, [], {})

    current: dict[str, RunRecord] = {}
    earlier = []
    for record in records:
        if changed_names(record, newest):
            earlier.append(record)
            continue
        replaced = current.pop(record.run_id, None)
        if replaced is not None:
            earlier.append(replaced)
        current[record.run_id] = record
    return Versions(list(current.values()), earlier, newest)


def describe_earlier(records: Iterable[RunRecord], newest: Mapping[str, str]) -> str:
    """What of these records is of an earlier version than the newest: `an earlier version of m.py`."""
    changed = list(dict.fromkeys(name for record in records for name in changed_names(record, newest)))
    names = [name for name in changed if not name.endswith(AND_IMPORTS)] or changed
    shown = [*names[:_SHOWN], *([f"{len(names) - _SHOWN} others"] if len(names) > _SHOWN else [])]
    return f"an earlier version of {_joined(shown) or 'the code'}"


def changed_names(record: RunRecord, newest: Mapping[str, str]) -> list[str]:
    """The source files and data sets of which a record has another version than the newest.

    A record of a version of dmls_ray that did not record digests has an unknown version of the modules and functions
    that its configuration names.
    """
    changed = [
        name for digests in (record.code, record.data) for name, digest in digests.items() if newest.get(name) != digest
    ]
    if record.code or changed:
        return changed
    named = [str(value).partition("#")[0] for value in record.config.values() if isinstance(value, str)]
    files = [file for text in named if is_reference(text) for file in sorted(files_of(text.partition(":")[0]))]
    return [name for name in (*files, *(f"{text}{OF_FUNCTION}" for text in named)) if name in newest]


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
