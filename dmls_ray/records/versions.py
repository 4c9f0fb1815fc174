"""Versions of the user's code and data in one results folder: which runs are current, which are of an earlier version.

A folder records the version of each source file and data set that its last call had. A run that had another version of
any of them is an earlier run, which tables leave out. To see that, a reader of the folder imports no code of the user.

Versions have numbers in the order of their first runs, so that a number keeps its meaning when an edit is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dmls_ray.records.identity import OF_FUNCTION, Identity
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import is_reference
from dmls_ray.util.source_digest import AND_IMPORTS, files_of

FIELD = "code_version"
"""Field of a configuration that distinguishes versions where all of them are shown."""

CURRENT = "current"
"""Its value for runs of the current version; the others have the number of their version."""

VersionKey = tuple[str, frozenset[tuple[str, str]], frozenset[tuple[str, str]]]


def version_key(record: RunRecord) -> VersionKey:
    """What distinguishes the records of a folder: run, code and data."""
    return record.run_id, frozenset(record.code.items()), frozenset(record.data.items())


def replaces(later: RunRecord, earlier: RunRecord) -> bool:
    """Whether a later record of the same run and version takes the place of an earlier one.

    A failure does not take the place of an answer: of two sweeps at one place, one may have ended the run, and which of
    their records is the later may depend on the clocks of two machines. Nor does a run of a search take the place of a
    benchmark's answer, whose times were measured alone. An answer that did not suffice gives way: that of a search to a
    benchmark, and that of a run which a search has stopped early.
    """
    if not earlier.outcome.is_final():
        return True
    modes = earlier.mode, later.mode
    if later.outcome.is_final():
        return modes != ("bench", "search")
    return modes == ("search", "bench") or earlier.is_stopped


@dataclass(frozen=True)
class Versions:
    """The records of a folder, by whether they are current."""

    current: Sequence[RunRecord]
    """One record a run."""
    earlier: Sequence[RunRecord]
    """Runs with an earlier version of the user's code or data, one record for each run and version."""
    newest: Mapping[str, str]
    """The last version of each source file and data set."""
    all: Sequence[RunRecord] = ()
    """The records of the whole folder, of which the versions get their numbers."""

    @cached_property
    def note(self) -> str:
        """A line about the runs that are left out; empty if there are none."""
        count = len(self.earlier)
        if not count:
            return ""
        are, them = ("is", "it") if count == 1 else ("are", "them")
        runs = "run" if count == 1 else "runs"
        numbers = {self.number_of(record) for record in self.earlier}
        which = "an earlier version" if len(numbers) == 1 else "earlier versions"
        if self.current_number and max(numbers) > self.current_number:  # an edit was undone
            which = "another version" if len(numbers) == 1 else "other versions"
        what = describe_earlier(self.earlier, self.newest, which)
        return f"{count:,} {runs} of {what} {are} not shown; --stale includes {them}."

    def of(self, choose: Callable[[Sequence[RunRecord]], Sequence[RunRecord]]) -> Versions:
        """The records that `choose` returns of those of each version."""
        return replace(self, current=choose(self.current), earlier=choose(self.earlier))

    @cached_property
    def _numbered(self) -> tuple[Mapping[VersionKey, int], Sequence[Mapping[str, str]]]:
        """The number of the version of each record; and of each version, its digests.

        Records whose digests do not contradict each other are of one version, so that models in several files have
        versions of their folder in common.
        """
        states: list[dict[str, str]] = []
        runs: list[dict[str, VersionKey]] = []
        numbers: dict[VersionKey, int] = {}
        for record in sorted(self.all, key=lambda record: record.started_at):
            key, digests = version_key(record), _digests_of(record)
            # The last version first: most runs follow a run of their version.
            for place in reversed(range(len(states))):
                state = states[place]
                agrees = all(state.get(name, digest) == digest for name, digest in digests.items())
                if agrees and runs[place].get(record.run_id, key) == key:
                    break
            else:
                place = len(states)
                states.append({})
                runs.append({})
            states[place].update(digests)
            runs[place][record.run_id] = key
            numbers[key] = place + 1
        return numbers, states

    def number_of(self, record: RunRecord) -> int:
        """The number of the version of a record, from 1 in the order of their first runs."""
        return self._numbered[0][version_key(record)]

    @cached_property
    def current_number(self) -> int:
        """The number of the current version; 0 if the present files were not together in any version."""
        present = [
            number
            for number, state in enumerate(self._numbered[1], start=1)
            if all(self.newest.get(name, "") == digest for name, digest in state.items())
        ]
        return max(present, default=0)

    def previous(self) -> list[RunRecord]:
        """Of each current trial, the runs of the version before the current one; of the last one if none is before it.

        By the time of the runs: after an undo, the version that is gone again is not the one before.
        """
        current = {record.trial_id: self.number_of(record) for record in self.current}
        numbers: dict[str, set[int]] = {}
        for record in self.earlier:
            numbers.setdefault(record.trial_id, set()).add(self.number_of(record))
        chosen = {
            trial: max(numbers[trial], key=lambda number: (number < now, number))
            for trial, now in current.items()
            if trial in numbers
        }
        return [record for record in self.earlier if self.number_of(record) == chosen.get(record.trial_id)]

    def of_version(self, name: str) -> list[RunRecord]:
        """The runs of a version.

        Args:
            name: its number, or `current`.

        Raises:
            ConfigError: there is no such version.
        """
        if name in (CURRENT, str(self.current_number)):
            return list(self.current)
        records = [record for record in self.all if str(self.number_of(record)) == name]
        if not records:
            raise ConfigError(f"there is no version {name} of your code and data; there are {self.listing}.")
        return records

    def name_of(self, records: Sequence[RunRecord]) -> str:
        """How texts name the version of these records: `version 2`."""
        if {id(record) for record in records} <= {id(record) for record in self.current}:
            return f"version {self.current_number}, the current one" if self.current_number else "the current version"
        return f"version {' and '.join(map(str, sorted({self.number_of(record) for record in records})))}"

    @property
    def listing(self) -> str:
        """The versions with the number and the start of their runs: `1 (6 runs from 2026-11-22 20:01)`."""
        begun: dict[int, list[str]] = {}
        for record in self.all:
            begun.setdefault(self.number_of(record), []).append(record.started_at[:16].replace("T", " "))
        return ", ".join(
            f"{number} ({'current, ' if number == self.current_number else ''}{len(times)} "
            f"run{'' if len(times) == 1 else 's'} from {min(times) or 'an unknown time'})"
            for number, times in sorted(begun.items())
        )

    def distinguished(self) -> list[RunRecord]:
        """All records; the field `code_version` of their configuration says which version they are of."""
        configs: dict[tuple[int, str], dict[str, Any]] = {}
        records: list[RunRecord] = []
        for record in (*self.earlier, *self.current):
            suffix, version = "", CURRENT
            if len(records) < len(self.earlier):
                version = str(self.number_of(record))
                suffix = f"-v{version}"
            config = configs.setdefault((id(record.config), version), {**record.config, FIELD: version})
            trial_id = record.trial_id + suffix
            records.append(record.replace(trial_id=trial_id, run_id=f"{trial_id}-{record.repeat}", config=config))
        return records


def folder_of(record: RunRecord) -> str:
    """The folder of the files of a run, relative to the results folder; also where all versions are shown."""
    run_id = record.run_id
    if (version := record.config.get(FIELD, CURRENT)) != CURRENT:
        run_id = f"{record.trial_id.removesuffix(f'-v{version}')}-{record.repeat}"
    return Identity(code=record.code, data=record.data).folder_of(run_id)


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
    # A copied folder has the sessions of another one after its own.
    for session in sorted(sessions, key=lambda session: str(session.get("started_at", ""))):
        newest |= {**session.get("code", {}), **session.get("data", {})}
    if not newest:
        return Versions(records, [], {}, records)

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
    return Versions(list(current.values()), earlier, newest, records)


def describe_earlier(records: Iterable[RunRecord], newest: Mapping[str, str], which: str = "an earlier version") -> str:
    """What of these records is of another version than the newest: `an earlier version of m.py`."""
    return f"{which} of {list_files(edited_names(records, newest)) or 'the code'}"


def edited_names(records: Iterable[RunRecord], newest: Mapping[str, str]) -> list[str]:
    """The source files and data sets of which any of the records has another version than the newest."""
    changed = list(dict.fromkeys(name for record in records for name in changed_names(record, newest)))
    return [name for name in changed if not name.endswith(AND_IMPORTS)] or changed


def changed_names(record: RunRecord, newest: Mapping[str, str]) -> list[str]:
    """The source files and data sets of which a record has another version than the newest.

    A record of a version of dmls_ray that did not record digests has an unknown version of the modules and functions
    that its configuration names.
    """
    changed = [
        name for digests in (record.code, record.data) for name, digest in digests.items() if newest.get(name) != digest
    ]
    return changed if record.code or changed else [name for name in _unrecorded_names(record) if name in newest]


def _digests_of(record: RunRecord) -> dict[str, str]:
    """The digests of a record; empty where it did not record that of a module or function that it names."""
    return {**({} if record.code else dict.fromkeys(_unrecorded_names(record), "")), **record.code, **record.data}


def _unrecorded_names(record: RunRecord) -> list[str]:
    """How the code of a record that has no digests would be named. A skipped run has executed none."""
    if record.outcome is Outcome.SKIPPED:
        return []
    named = [str(value).partition("#")[0] for value in record.config.values() if isinstance(value, str)]
    files = [file for text in named if is_reference(text) for file in sorted(files_of(text.partition(":")[0]))]
    return [*files, *(f"{text}{OF_FUNCTION}" for text in named)]


def list_files(names: Sequence[str]) -> str:
    """Names of files, functions and data sets in a sentence; of many the first."""
    names = list(dict.fromkeys(name.removesuffix(OF_FUNCTION) for name in names))
    shown = [*names[:_SHOWN], *([f"{len(names) - _SHOWN} others"] if len(names) > _SHOWN else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
