"""A results folder at a URI, and its local copy.

    s3://bucket/batch_size/
        runs.jsonl                              as in every results folder, but always written whole
        runs/<time>-<run_id>-<unique>.json      a run that has ended since: its line
        sweep.json, report.html, table.md, tensorboard/, ...

A run counts that is in runs.jsonl or in a separate object; a line that is in both counts once. Objects are deleted only
after runs.jsonl has their lines, so a reader that reads the objects first and runs.jsonl second misses no run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Collection
from pathlib import Path

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.runs_file import RUNS, merge_lines
from dmls_ray.storage.sweep_file import SWEEP, read_sweep
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below, is_uri

PENDING_DIR = "runs"
"""The folder of runs that are separate objects."""

GENERATED_DIRS = ("tensorboard",)
"""Folders that are written as a whole: a file that is missing in the local copy is deleted at the URI, too."""


class Mirror:
    """A copy of a results folder at a URI, in a temporary folder that is deleted with this object.

    Args:
        uri: the results folder.
        files: names of files to copy, in addition to the runs and sweep.json, with their times. Of a folder, only the
            existence is copied.

    Raises:
        ConfigError: the URI has credentials in it.
        StoreError: the folder cannot be read.
    """

    def __init__(self, uri: str, files: Collection[str] = ()) -> None:
        self.uri, self.objects = uri, ObjectStore(uri)
        self.folder = Path(tempfile.mkdtemp(prefix="dmls_ray-mirror-"))
        self.is_kept = False
        """Whether the copy is kept, since it has runs that could not be uploaded."""
        self._discard = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.pending = self.objects.get_all(self.pending_names())
        """The runs that were separate objects when this copy was made."""
        self._fill(files)
        self._before = self._files()

    def pending_names(self) -> list[str]:
        """Names of the objects with one run each, in the order of writing."""
        return [
            item.name for item in self.objects.list(PENDING_DIR) if item.name.endswith(".json") and not item.is_folder
        ]

    def push(self) -> None:
        """Upload new and changed files, except runs.jsonl and sweep.json, which other sweeps may have changed.

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
        """Keep the copy."""
        self.is_kept = True
        self._discard.detach()

    def _fill(self, files: Collection[str]) -> None:
        for name, content in self.pending.items():
            _check_record(content, below(self.uri, name))
        entries = {item.name: item for item in self.objects.list()}
        wanted = [name for name in (SWEEP, *files) if name in entries]
        # runs.jsonl is read after the objects: a run that has moved meanwhile is in one of the two.
        files = [name for name in (RUNS, *wanted) if name in entries and not entries[name].is_folder]
        contents = self.objects.get_all(files)
        if self.pending:
            contents[RUNS] = merge_lines(contents.get(RUNS, b""), self.pending.values())
        for name, content in contents.items():
            path = self.folder / name
            path.write_bytes(content)
            if name != RUNS or not self.pending:
                os.utime(path, ns=(entries[name].modified_ns, entries[name].modified_ns))
        for name in wanted:
            if entries[name].is_folder:
                (self.folder / name).mkdir()
        read_sweep(self.folder, self.uri)

    def _files(self) -> dict[str, tuple[int, int]]:
        """Name of each file that `push` uploads -> its size and time."""
        states = {}
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and name not in (RUNS, SWEEP) and not path.name.startswith("."):
                state = path.stat()
                states[name] = (state.st_size, state.st_mtime_ns)
        return states


def is_record(content: bytes) -> bool:
    """Whether the content of an object is one run."""
    try:
        _check_record(content, "")
    except StoreError:
        return False
    return True


def pending_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the runs that a sweep, which wrote to this folder by its URI, has left as separate files."""
    return (
        [] if is_uri(folder) else sorted(path for path in Path(folder).glob(f"{PENDING_DIR}/*.json") if path.is_file())
    )


def _check_record(content: bytes, named: str) -> None:
    try:
        if b"\n" in content.strip():
            raise ValueError("it has several lines")
        record = RunRecord.from_json(content)
        _ = record.epochs, record.ranks
    except (ValueError, RecursionError, StoreError) as error:
        raise StoreError(
            f"{named} is no record ({type(error).__name__}: {error}); remove it, or name another folder with --out."
        ) from error
