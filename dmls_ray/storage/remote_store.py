"""A results folder at a URI that a sweep writes to: one immutable object a run, put together at the end.

An object store has no append and no lock, so several sweeps may write to one folder at a time. None loses a run:

- A run is an object of its own, with a name of its own, before `append` returns; nobody ever writes to it again.
- At the end runs.jsonl is written whole: as it is on the store then, with the lines of the objects there are then.
  Only when it is there are these objects deleted, and no others. After a death in between, the lines are in both, and
  count once.
- Two at once could each write a runs.jsonl that lacks what the other has just deleted. So who is to write one first
  puts a claim beside it, then looks for others' claims, and leaves its runs as objects where there is one; its own
  claim goes last of all. Of two whose claims are there at the same time the one that looks later sees the other's, so
  that never two write at once; it may be that neither does, and then the next sweep there puts all together.
- sweep.json is written whole, too, with what others have noted in it. If two write it within a moment, one of their
  notes is lost until that sweep ends, which notes it again.

What remains: a claim that is an hour old is taken for that of a process that has died, and who finds itself ten minutes
after its own claim gives up. Listing must show what was written before, as S3, GCS, Azure and local disks promise; some
network file systems show it only seconds later. And two sweeps at once do each other's runs again: give each its own
--out.
"""

from __future__ import annotations

import os
import shlex
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import RUNS, SWEEP, Store, dump_sweep, first_free_folder, latest_records, read_sweep
from dmls_ray.storage.mirror import PENDING_DIR, Mirror, is_record, merge_lines, pending_files
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.util.atomic import atomic_write_text
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below, is_uri, numbered

LOCK_DIR = "compacting"

_LOCK_EXPIRES_S = 3600.0
_LOCK_VALID_S = 600.0
_RETRY_S = 30.0
"""A store that does not answer is asked again no sooner: each time costs seconds, and runs go on."""

_RETRY_SHARE = 10
"""Nor before so many times as long as it was last waited for."""

Note = Callable[[str], object]


def mirror_of(store: Store) -> Mirror | None:
    """What stands for the URI that a store is at; None of one that is a folder itself."""
    return store.mirror if isinstance(store, RemoteStore) else None


def open_store(place: str | os.PathLike[str], note: Note, files: Collection[str] = ()) -> Store:
    """The store at a local path or a URI.

    Args:
        place: the results folder.
        note: is told what a user should know.
        files: what is made of the runs, which need not be made anew where it is there.

    Raises:
        StoreError: as `Store`, or the URI cannot be reached.
    """
    if is_uri(place):
        return RemoteStore(str(place), note, files)
    if pending := pending_files(place):
        raise StoreError(
            f"--out {place} has {len(pending)} runs as single files in {PENDING_DIR}/, which a sweep at a URI has "
            f"left; go on with --out {Path(place).resolve().as_uri()}, which puts them into {RUNS}."
        )
    return Store(place)


def first_free_location(place: str) -> str | Path:
    """The first of PLACE, PLACE-2, PLACE-3, ... that holds no sweep."""
    if not is_uri(place):
        return first_free_folder(place)
    number, candidate = 1, place
    while _holds_sweep(ObjectStore(candidate)):
        number += 1
        candidate = numbered(place, number)
    return candidate


def _holds_sweep(objects: ObjectStore) -> bool:
    return any(item.name in (RUNS, SWEEP, PENDING_DIR) for item in objects.list())


def records_at(place: str | os.PathLike[str]) -> list[RunRecord]:
    """One record a run of what is at a local path or a URI; none where there is no sweep yet.

    Raises:
        StoreError: it cannot be read.
    """
    mirror = Mirror(str(place)) if is_uri(place) else None
    folder = mirror.folder if mirror else Path(place)
    return latest_records(folder, str(place)) if (folder / RUNS).exists() else []


class RemoteStore(Store):
    """A results folder at a URI; `folder` is a local one that stands for it.

    Args:
        uri: where the results go.
        note: is told, once each, that the store does not answer, and what another sweep does there.
        files: as of `open_store`.

    Raises:
        StoreError: it cannot be reached or read.
    """

    def __init__(self, uri: str, note: Note, files: Collection[str] = ()) -> None:
        self.mirror: Mirror = Mirror(uri, files)
        super().__init__(self.mirror.folder, where=uri)
        self._objects, self._note = self.mirror.objects, note
        self._sent: dict[str, bytes] = {}
        """Name of an object -> the line it holds."""
        self._unsent: dict[str, bytes] = {}
        """Likewise, of what could not be uploaded yet."""
        self._retry_at = 0.0
        self._noted: list[Mapping[str, Any]] = []
        """Sessions of this call."""
        self._is_closed = False

    def append(self, record: RunRecord) -> bytes:
        """Add a run; when this returns it is an object at the URI, or, while that does not answer, on the disk here."""
        line = super().append(record)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self._unsent[f"{PENDING_DIR}/{stamp}-{record.run_id}-{uuid.uuid4().hex[:8]}.json"] = line
        if (began := time.monotonic()) >= self._retry_at:
            try:
                self._send()
            except StoreError as error:
                if not self._retry_at:
                    self._note(
                        f"{error} Runs are kept in {self.folder} meanwhile, and uploaded when it answers; the sweep "
                        "goes on."
                    )
                ended = time.monotonic()
                self._retry_at = ended + max(_RETRY_S, _RETRY_SHARE * (ended - began))
        return line

    def add_session(self, session: Mapping[str, Any]) -> None:
        """Note in sweep.json what this call asked for, before anything starts.

        Raises:
            StoreError: nothing can be written at the URI.
        """
        try:
            super().add_session(session)
            self._objects.put(SWEEP, (self.folder / SWEEP).read_bytes())
        except StoreError:
            self._is_closed = True  # nothing has begun, and nothing is to be uploaded
            raise
        self._noted.append(dict(session))

    def close(self) -> None:
        """Upload what there is, and put the runs into runs.jsonl."""
        try:
            if not self._is_closed:
                self._is_closed = True
                self._finish()
        except StoreError as error:
            self._note(self._left(str(error)))
        except BaseException:
            if self._unsent:
                self._note(self._left(f"{self.where} was not written to the end."))
            raise
        finally:
            super().close()

    def _finish(self) -> None:
        if self._unsent:
            self._send()
        self._compact()
        self._describe()
        self.mirror.push()

    def _left(self, why: str) -> str:
        """What is told of what is not at the URI."""
        place = shlex.quote(self.where)
        if not self._unsent:
            return f"{why} All runs are there; dmls-ray report {place} makes the other files of them."
        self.mirror.keep()
        return (
            f"{why} {len(self._unsent)} runs of this sweep are not there; all of them are kept in {self.folder}: "
            f"dmls-ray copy {self.folder} {place} uploads them."
        )

    def _send(self) -> None:
        # Those that had got there are written again, to the same names with the same lines.
        self._objects.put_all(self._unsent, self._unsent.__getitem__)
        if self._retry_at:
            self._note(f"{self.where} answers again, and has all runs that have ended.")
        self._retry_at = 0.0
        self._sent |= self._unsent
        self._unsent = {}

    def _compact(self) -> None:
        """Put the runs that are objects of their own into runs.jsonl."""
        if not self.mirror.pending_names():
            return
        claim = f"{LOCK_DIR}/{uuid.uuid4().hex}.json"
        began = time.time()
        self._objects.put(claim, b"{}\n")
        try:
            if not self._is_alone(claim):
                self._note(
                    f"Another sweep puts its runs into {below(self.where, RUNS)} just now, or died of it within the "
                    f"hour; those of this one stay in {PENDING_DIR}/, are read from there, and are put together next "
                    "time."
                )
                return
            # Looked for again: only now no other can take them away.
            names = self.mirror.pending_names()
            known = self.mirror.pending | self._sent
            loose = {name: known[name] for name in names if name in known}
            others = self._objects.get_all([name for name in names if name not in known])
            loose |= {name: content for name, content in others.items() if is_record(content)}
            whole = merge_lines(self._objects.get(RUNS) or b"", [loose[name] for name in sorted(loose)])
            if time.time() - began > _LOCK_VALID_S:
                raise StoreError(f"{below(self.where, RUNS)} took too long; the next sweep there writes it.")
            self._objects.put(RUNS, whole)
            self._objects.delete_all(loose)
        finally:
            self._objects.delete_all([claim])
        self._tell_of_others(whole)

    def _is_alone(self, claim: str) -> bool:
        """Whether nobody else puts runs together; claims of the dead are removed."""
        claims = {item.name: item.modified_ns for item in self._objects.list(LOCK_DIR) if not item.is_folder}
        # Both by the store's clock.
        now = claims.get(claim, 0)
        dead = [name for name, at in claims.items() if now - at > _LOCK_EXPIRES_S * 1e9]
        self._objects.delete_all(dead)
        return claim in claims and len(claims) == len(dead) + 1

    def _tell_of_others(self, whole: bytes) -> None:
        path = self.folder / RUNS
        ours = set(path.read_bytes().split(b"\n")) if path.exists() else set()
        if others := sum(line not in ours for line in whole.split(b"\n") if line):
            self._note(
                f"Another sweep has written {others} runs to {self.where} meanwhile; they are kept beside those of "
                "this one. Two at once run the same twice and disturb each other's times: give each its own --out."
            )

    def _describe(self) -> None:
        """sweep.json, with this call's sessions and those that others have noted meanwhile."""
        there = self._objects.get(SWEEP)
        if not self._noted or there is None:
            return
        atomic_write_text(self.folder / SWEEP, there.decode(errors="replace"))
        described = read_sweep(self.folder, self.where)
        sessions = described.get("sessions", [])
        missing = [session for session in self._noted if session not in sessions]
        if missing:
            described["sessions"] = sorted([*sessions, *missing], key=lambda item: str(item.get("started_at", "")))
            atomic_write_text(self.folder / SWEEP, dump_sweep(described))
            self._objects.put(SWEEP, (self.folder / SWEEP).read_bytes())
