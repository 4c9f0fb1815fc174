"""A results folder at a URI, and its local copy.

    s3://bucket/batch_size/
        runs/s<sweep>-<number>-<run_id>-<unique>.jsonl    lines of a runs.jsonl: of an ended run, or of copied runs
        sessions/s<sweep>-<number>-<unique>.json          a sweep.json with the session of one call, or copied ones
        report.html, table.md, tensorboard/, ...          what follows from the runs

Runs and sessions are objects that no process changes or deletes, so nothing of them can be lost. Where a run was
written more than once, the order of the names decides, and not the clock of a machine: a sweep's number is one more
than the highest that it found, so a sweep that began after another had written sorts after it.

An object that is empty or torn is left out: some stores (Azure) make an object at its opening, so a process that dies
there leaves an empty one.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from dmls_ray.records.codec import SharedObjects
from dmls_ray.storage.object_store import Entry, ObjectStore
from dmls_ray.storage.runs_file import RUNS, is_complete, parse_lines
from dmls_ray.storage.sweep_file import SWEEP, parse_sweep, write_sweep
from dmls_ray.util.temporary_folder import TemporaryFolder
from dmls_ray.util.uri import below

RUNS_DIR, SESSIONS_DIR = "runs", "sessions"
"""Folders of the objects with runs and with sessions."""

GENERATED_DIRS = ("tensorboard",)
"""Folders that are written as a whole: a file that is missing in the local copy is deleted at the URI, too."""

_NUMBERED = re.compile(r"(?:runs|sessions)/s(\d+)-")


class Mirror:
    """A copy of a results folder at a URI, in a temporary folder that is deleted with this object.

    The copy has all runs in runs.jsonl and all sessions in sweep.json.

    Args:
        uri: the results folder.
        files: names of files to copy, in addition to the runs and sessions, with their times. Of a folder, only the
            existence is copied.

    Raises:
        ConfigError: the URI has credentials in it.
        StoreError: the folder cannot be read.
    """

    def __init__(self, uri: str, files: Collection[str] = ()) -> None:
        self.uri, self.objects = uri, ObjectStore(uri)
        self._temporary = TemporaryFolder("mirror")
        self.folder = self._temporary.path
        self.is_kept = False
        """Whether the copy is kept, since it has runs that could not be uploaded."""
        self.run_objects: frozenset[str] = frozenset()
        """The names of the objects with runs when this copy was made."""
        self.last_sweep = 0
        """The highest number of a sweep that has written there."""
        self._fill(files)
        self._before = self._files()

    def new_run_objects(self) -> set[str]:
        """Names of the objects with runs that have been written since this copy was made."""
        return set(self._list(RUNS_DIR)) - self.run_objects

    def push(self) -> None:
        """Upload new and changed files, except runs.jsonl and sweep.json, whose content is in other objects.

        Raises:
            StoreError: a file cannot be written.
        """
        files = self._files()
        changed = [name for name, state in files.items() if self._before.get(name) != state]
        self.objects.put_all(changed, lambda name: (self.folder / name).read_bytes())
        for folder in {name.partition("/")[0] for name in changed} & set(GENERATED_DIRS):
            present = [item.name for item in self.objects.list(folder, deep=True) if not item.is_folder]
            self.objects.delete_all([name for name in present if name not in files])
        self._before = files

    def keep(self) -> None:
        """Keep the copy after the end of this process, unless `release` is called."""
        self.is_kept = True
        self._temporary.keep()

    def release(self) -> None:
        """Delete the copy with this object."""
        self.is_kept = False
        self._temporary.keep(False)

    def _list(self, folder: str) -> dict[str, Entry]:
        """The objects of a folder by name, in the order of their names."""
        return {item.name: item for item in self.objects.list(folder) if not item.is_folder}

    def _fill(self, files: Collection[str]) -> None:
        runs, sessions = self._list(RUNS_DIR), self._list(SESSIONS_DIR)
        self.run_objects = frozenset(runs)
        numbers = [int(found[1]) for name in (*runs, *sessions) if (found := _NUMBERED.match(name))]
        self.last_sweep = max(numbers, default=0)
        others = {item.name: item for item in self.objects.list() if item.name in files}
        named = [name for name, item in others.items() if not item.is_folder]
        contents = self.objects.get_all([*runs, *sessions, *named])

        self._write_runs({name: contents.get(name, b"") for name in runs})
        if (self.folder / RUNS).exists():
            modified_ns = max(item.modified_ns for item in runs.values())
            os.utime(self.folder / RUNS, ns=(modified_ns, modified_ns))
        self._write_sessions({name: contents.get(name, b"") for name in sessions})
        for name, item in others.items():
            path = self.folder / name
            if item.is_folder:
                path.mkdir()
            elif name in contents:
                path.write_bytes(contents[name])
                os.utime(path, ns=(item.modified_ns, item.modified_ns))

    def _write_runs(self, objects: Mapping[str, bytes]) -> None:
        """Write the local runs.jsonl of the objects in their order."""
        shared = SharedObjects()
        lines = []
        for name, content in objects.items():
            for line, _ in parse_lines(io.BytesIO(content), below(self.uri, name), shared):
                lines.append(line.rstrip(b"\n") + b"\n")
        if lines:
            (self.folder / RUNS).write_bytes(b"".join(lines))

    def _write_sessions(self, objects: Mapping[str, bytes]) -> None:
        sessions: list[Any] = []
        for name, content in objects.items():
            if is_complete(content):
                sessions += parse_sweep(content, below(self.uri, name)).get("sessions", [])
        if sessions:
            write_sweep(self.folder, {"sessions": sessions})

    def _files(self) -> dict[str, tuple[int, int]]:
        """Name of each file that `push` uploads -> its size and time."""
        states = {}
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and name not in (RUNS, SWEEP) and not path.name.startswith("."):
                state = path.stat()
                states[name] = (state.st_size, state.st_mtime_ns)
        return states
