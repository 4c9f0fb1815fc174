"""Results at a URI that a sweep writes to: one immutable object a run, merged into runs.jsonl at the end.

An object store has no append and no lock, so several sweeps may write to one location at the same time. No run of
theirs is lost:

- A run is an object with a unique name before `append` returns. No process writes to that object again.
- At the end, all objects are merged into runs.jsonl, which is written whole: its present content, then the lines of the
  objects that exist. Only then are these objects deleted, and no others. After a death in between, a line is in both
  places, and counts once.
- Two processes at once could each write a runs.jsonl without the lines whose objects the other has just deleted. So a
  process first writes a claim, and then lists all claims. Where there is another claim, it leaves its runs as objects.
  It deletes its claim last. Of two processes with claims at the same time, the later to list sees both claims, so two
  never write at the same time. Possibly neither writes; then the next sweep merges all runs.
- sweep.json is written whole, with the sessions that other sweeps have added. If two sweeps write it at the same
  moment, the session of one is missing until that sweep ends, which adds it again.

Two limits remain. A claim that is an hour old counts as that of a dead process, and a process gives up ten minutes
after its claim. A list must show all earlier writes, as it does on S3, GCS, Azure and local disks; some network file
systems show a write only seconds later.

Two sweeps at the same time run the same configurations twice: give each a different --out.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import Store
from dmls_ray.storage.mirror import PENDING_DIR, Mirror, is_record
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.runs_file import RUNS, merge_lines
from dmls_ray.storage.sweep_file import SWEEP, read_sweep, write_sweep
from dmls_ray.util.atomic import atomic_write_text
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below

CLAIMS_DIR = "compacting"

_CLAIM_EXPIRES_S = 3600.0
_CLAIM_VALID_S = 600.0

_RETRY_S = 30.0
"""Shortest time between two attempts to reach a store that did not answer: an attempt takes seconds, and runs go on."""

_RETRY_SHARE = 10
"""Shortest such time, in multiples of the last attempt's duration."""

Note = Callable[[str], object]


class RemoteStore(Store):
    """Results at a URI; `folder` is a local copy.

    Args:
        uri: where the results go.
        note: receives, once each, that the store does not answer, and that another sweep writes there.
        files: as of `open_store`.

    Raises:
        StoreError: the URI cannot be reached or read.
    """

    mirror: Mirror

    def __init__(self, uri: str, note: Note, files: Collection[str] = ()) -> None:
        self.mirror = Mirror(uri, files)
        super().__init__(self.mirror.folder, where=uri)
        self._objects, self._note = self.mirror.objects, note
        self._sent: dict[str, bytes] = {}
        """Name of an object -> its line."""
        self._unsent: dict[str, bytes] = {}
        """Likewise, of objects that could not be uploaded yet."""
        self._retry_at = 0.0
        self._sessions: list[Mapping[str, Any]] = []
        """Sessions of this call."""
        self._is_closed = False

    def append(self, record: RunRecord) -> bytes:
        """Add a run. It is then an object at the URI, or, while the store does not answer, a line on the local disk."""
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
        """Add to sweep.json what this call asks for, before anything starts.

        Raises:
            StoreError: nothing can be written at the URI.
        """
        try:
            super().add_session(session)
            self._objects.put(SWEEP, (self.folder / SWEEP).read_bytes())
        except StoreError:
            self._is_closed = True  # no run has started, so there is nothing to upload
            raise
        self._sessions.append(dict(session))

    def close(self) -> None:
        """Upload what is not there yet, and merge the runs into runs.jsonl."""
        try:
            if not self._is_closed:
                self._is_closed = True
                self._finish()
        except StoreError as error:
            self._note(self._incomplete(str(error)))
        except BaseException:
            if self._unsent:
                self._note(self._incomplete(f"{self.where} was not written to the end."))
            raise
        finally:
            super().close()

    def _finish(self) -> None:
        if self._unsent:
            self._send()
        self._compact()
        self._upload_sessions()
        self.mirror.push()

    def _incomplete(self, reason: str) -> str:
        """The note about what is missing at the URI, with the command that adds it."""
        location = shlex.quote(self.where)
        if not self._unsent:
            return f"{reason} All runs are there; dmls-ray report {location} makes the other files of them."
        self.mirror.keep()
        return (
            f"{reason} {len(self._unsent)} runs of this sweep are not there; all of them are kept in {self.folder}: "
            f"dmls-ray copy {self.folder} {location} uploads them."
        )

    def _send(self) -> None:
        # Objects that had arrived before a failure are written again, with the same names and lines.
        self._objects.put_all(self._unsent, self._unsent.__getitem__)
        if self._retry_at:
            self._note(f"{self.where} answers again, and has all runs that have ended.")
        self._retry_at = 0.0
        self._sent |= self._unsent
        self._unsent = {}

    def _compact(self) -> None:
        if not self.mirror.pending_names():
            return
        content = _merge_pending(self.mirror, self.mirror.pending | self._sent)
        if content is None:
            self._note(
                f"Another sweep merges its runs into {below(self.where, RUNS)} at this moment, or was killed doing so "
                f"within the last hour. The runs of this sweep stay in {PENDING_DIR}/, are read from there, and are "
                "merged by the next sweep."
            )
            return

        path = self.folder / RUNS
        ours = set(path.read_bytes().split(b"\n")) if path.exists() else set()
        if others := sum(line not in ours for line in content.split(b"\n") if line):
            self._note(
                f"Another sweep has written {others} runs to {self.where} meanwhile; they are kept, too. Two sweeps at "
                "once run the same twice and disturb each other's times: give each a different --out."
            )

    def _upload_sessions(self) -> None:
        """Write sweep.json with the sessions of this call and those that others have added meanwhile."""
        content = self._objects.get(SWEEP)
        if not self._sessions or content is None:
            return
        atomic_write_text(self.folder / SWEEP, content.decode(errors="replace"))
        described = read_sweep(self.folder, self.where)
        sessions = described.get("sessions", [])
        missing = [session for session in self._sessions if session not in sessions]
        if missing:
            described["sessions"] = sorted([*sessions, *missing], key=lambda item: str(item.get("started_at", "")))
            write_sweep(self.folder, described)
            self._objects.put(SWEEP, (self.folder / SWEEP).read_bytes())


def _merge_pending(mirror: Mirror, lines: Mapping[str, bytes]) -> bytes | None:
    """Merge the runs that are objects into runs.jsonl.

    Args:
        mirror: the results at the URI.
        lines: name of an object -> its line, of objects that need not be read again.

    Returns:
        The content of runs.jsonl; None if another process merges at the moment.

    Raises:
        StoreError: the URI cannot be read or written, or does not answer in time.
    """
    objects = mirror.objects
    claim = f"{CLAIMS_DIR}/{uuid.uuid4().hex}.json"
    began = time.time()
    objects.put(claim, b"{}\n")
    try:
        if not _is_only_claim(objects, claim):
            return None

        # Listed again: only from here on can no other process delete them.
        names = mirror.pending_names()
        pending = {name: lines[name] for name in names if name in lines}
        added = objects.get_all([name for name in names if name not in lines])
        pending |= {name: content for name, content in added.items() if is_record(content)}

        content = merge_lines(objects.get(RUNS) or b"", [pending[name] for name in sorted(pending)])
        if time.time() - began > _CLAIM_VALID_S:
            raise StoreError(f"{below(mirror.uri, RUNS)} took too long; the next sweep there writes it.")
        objects.put(RUNS, content)
        objects.delete_all(pending)
    finally:
        objects.delete_all([claim])
    return content


def _is_only_claim(objects: ObjectStore, claim: str) -> bool:
    """Whether no other process merges runs; expired claims are deleted."""
    claims = {entry.name: entry.modified_ns for entry in objects.list(CLAIMS_DIR) if not entry.is_folder}
    # Both times are by the store's clock.
    now = claims.get(claim, 0)
    expired = [name for name, written_ns in claims.items() if now - written_ns > _CLAIM_EXPIRES_S * 1e9]
    objects.delete_all(expired)
    return claim in claims and len(claims) == len(expired) + 1
