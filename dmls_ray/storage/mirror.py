"""A results folder at a URI, read through a local one that stands for it.

    s3://bucket/batch_size/
        runs.jsonl                              as in every results folder, but only ever written whole
        runs/<time>-<run_id>-<unique>.json      a run that has ended since: its line, as one object
        sweep.json, report.html, table.md, tensorboard/, ...

A run counts that is in runs.jsonl or in an object of its own; a line that is in both counts once. Objects leave only
for runs.jsonl, so whoever reads it after them misses none that was there when the reading began.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable
from pathlib import Path

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import RUNS, SWEEP, is_complete, latest_records, read_sweep
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below, is_uri

PENDING_DIR = "runs"
"""Where a run lies as an object of its own."""

GENERATED_DIRS = ("tensorboard",)
"""Folders that are made anew as a whole: what is no longer in them here goes there, too."""


class Mirror:
    """A copy of a results folder at a URI, in a temporary folder that goes when nobody refers to this any more.

    Args:
        uri: the results folder.
        files: what to copy beside the runs and sweep.json, with the time it was written at; of a folder, only that it
            is there.

    Raises:
        ConfigError: the URI has credentials in it.
        StoreError: it cannot be read.
    """

    def __init__(self, uri: str, files: Collection[str] = ()) -> None:
        self.uri, self.objects = uri, ObjectStore(uri)
        self.folder = Path(tempfile.mkdtemp(prefix="dmls_ray-mirror-"))
        self.is_kept = False
        """Whether the copy stays, since it has what could not be uploaded."""
        self._discard = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.pending = self.objects.get_all(self.pending_names())
        """The runs that lay as objects of their own when this was made."""
        self._fill(files)
        self._before = self._files()

    def pending_names(self) -> list[str]:
        """The objects that hold a run each, in the order they were written."""
        return [
            item.name for item in self.objects.list(PENDING_DIR) if item.name.endswith(".json") and not item.is_folder
        ]

    def records(self) -> list[RunRecord]:
        """One record a run, as `latest_records`."""
        return latest_records(self.folder, self.uri)

    def push(self) -> None:
        """Upload what was made or changed here, but for runs.jsonl and sweep.json, which others may have changed there.

        Raises:
            StoreError: some of it cannot be written.
        """
        files = self._files()
        changed = [name for name, state in files.items() if self._before.get(name) != state]
        self.objects.put_all(changed, lambda name: (self.folder / name).read_bytes())
        for folder in {name.partition("/")[0] for name in changed} & set(GENERATED_DIRS):
            there = [item.name for item in self.objects.list(folder, deep=True) if not item.is_folder]
            self.objects.delete_all([name for name in there if name not in files])
        self._before = files

    def keep(self) -> None:
        """Let the copy stay."""
        self.is_kept = True
        self._discard.detach()

    def _fill(self, files: Collection[str]) -> None:
        for name, content in self.pending.items():
            _check_record(content, below(self.uri, name))
        there = {item.name: item for item in self.objects.list()}
        wanted = [name for name in (SWEEP, *files) if name in there]
        # The objects were read before it: one that has gone into it meanwhile is in one of the two.
        files = [name for name in (RUNS, *wanted) if name in there and not there[name].is_folder]
        contents = self.objects.get_all(files)
        if self.pending:
            contents[RUNS] = merge_lines(contents.get(RUNS, b""), self.pending.values())
        for name, content in contents.items():
            path = self.folder / name
            path.write_bytes(content)
            if name != RUNS or not self.pending:
                os.utime(path, ns=(there[name].modified_ns, there[name].modified_ns))
        for name in wanted:
            if there[name].is_folder:
                (self.folder / name).mkdir()
        read_sweep(self.folder, self.uri)

    def _files(self) -> dict[str, tuple[int, int]]:
        """What is uploaded as it is -> its size and time."""
        found = {}
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and name not in (RUNS, SWEEP) and not path.name.startswith("."):
                state = path.stat()
                found[name] = (state.st_size, state.st_mtime_ns)
        return found


def merge_lines(whole: bytes, lines: Iterable[bytes]) -> bytes:
    """A runs.jsonl, and then those of the lines that it does not have; a torn last line of it is cut off."""
    last = whole.rpartition(b"\n")[2]
    if last:
        whole = whole + b"\n" if is_complete(last) else whole[: -len(last)]
    left = {line.strip(): None for line in lines}
    if left:
        for line in whole.split(b"\n"):
            left.pop(line, None)
    return whole + b"".join(line + b"\n" for line in left)


def is_record(content: bytes) -> bool:
    """Whether an object holds one run."""
    try:
        _check_record(content, "")
    except StoreError:
        return False
    return True


def find_sweeps(uri: str) -> list[str]:
    """The results folders at or below a URI.

    Raises:
        StoreError: it cannot be read.
    """
    found = set()
    for item in ObjectStore(uri).list(deep=True):
        folder, _, name = item.name.rpartition("/")
        if name != RUNS and Path(folder).name == PENDING_DIR and name.endswith(".json"):
            folder, name = folder.rpartition("/")[0], RUNS
        if name == RUNS and not item.is_folder:
            found.add(below(uri, folder) if folder else uri)
    return sorted(found)


def pending_files(folder: str | os.PathLike[str]) -> list[Path]:
    """What a sweep that wrote to this folder as file://, or to what it is a copy of, has left as objects."""
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
