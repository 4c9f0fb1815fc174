"""`Mirror`: a copy of a results folder at a URI."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

from dmls_ray.records.codec import SharedObjects
from dmls_ray.storage.folder import SWEEP, parse_sweep, write_sweep
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.runs_file import RUNS, is_complete, parse_lines
from dmls_ray.util.files import TemporaryFolder
from dmls_ray.util.uri import below

RUNS_DIR, SESSIONS_DIR = "runs", "sessions"
"""Folders of the objects with runs and with sessions."""

_NUMBERED = re.compile(r"(?:runs|sessions)/s(\d+)-")


class Mirror:
    """A copy of a results folder at a URI, in a temporary folder that is deleted with this object.

    The copy has all runs in runs.jsonl and all sessions in sweep.json, and no other file.

    Args:
        uri: the results folder.

    Raises:
        ConfigError: the URI has credentials in it.
        StoreError: the folder cannot be read.
    """

    def __init__(self, uri: str) -> None:
        self.uri, self.objects = uri, ObjectStore(uri)
        self._temporary = TemporaryFolder("mirror")
        self.folder = self._temporary.path
        self.is_kept = False
        """Whether the copy is kept, since it has runs that could not be uploaded."""
        runs, sessions = self.objects.list(RUNS_DIR), self.objects.list(SESSIONS_DIR)
        numbers = [int(found[1]) for name in (*runs, *sessions) if (found := _NUMBERED.match(name))]
        self.last_sweep = max(numbers, default=0)
        """The highest number of a sweep that has written there."""
        contents = self.objects.get_all([*runs, *sessions])
        self._write_runs({name: contents.get(name, b"") for name in runs})
        self._write_sessions({name: contents.get(name, b"") for name in sessions})

    def push(self) -> None:
        """Upload all files of the copy except runs.jsonl and sweep.json, whose content is in other objects.

        Raises:
            StoreError: a file cannot be written.
        """
        paths = {path.relative_to(self.folder).as_posix(): path for path in self.folder.rglob("*") if path.is_file()}
        names = [name for name, path in paths.items() if name not in (RUNS, SWEEP) and not path.name.startswith(".")]
        self.objects.put_all(names, lambda name: paths[name].read_bytes())

    def keep(self, kept: bool = True) -> None:
        """Keep the copy after the end of this process; or no longer, so that it is deleted with this object."""
        self.is_kept = kept
        self._temporary.keep(kept)

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
