"""Results at a URI: one immutable object a run, and one for the session of each call; and their local copy.

    s3://bucket/batch_size/
        runs/s<sweep>-<number>-<run_id>-<unique>.jsonl    lines of a runs.jsonl: of an ended run, or of copied runs
        sessions/s<sweep>-<number>-<unique>.json          a sweep.json with the session of one call, or copied ones
        report.html, table.md, tensorboard/, ...          what follows from the runs

An object store has no append and no lock, so several sweeps may write to one location at the same time. No run of
theirs is lost, since no object with a run or a session is ever changed or deleted: a run is an object with a unique
name before `append` returns, and readers read all objects. Where an upload failed, objects that may have arrived are
sent again with the same content. Two sweeps at the same time run the same configurations twice: give each a different
--out.

Where a run was written more than once, the order of the names decides, and not the clock of a machine: a sweep's number
is one more than the highest that it found, so a sweep that began after another had written sorts after it. A list must
show all earlier writes, as it does on S3, GCS and Azure.

An object that is empty or torn is left out: some stores (Azure) make an object at its opening, so a process that dies
there leaves an empty one.
"""

from __future__ import annotations

import itertools
import shlex
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import sweep_text
from dmls_ray.storage.mirror import RUNS_DIR, SESSIONS_DIR, Mirror
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import StoreError

_RETRY_S = 60.0
"""Time between two attempts to reach a store that did not answer: an attempt takes seconds, and runs go on."""

Note = Callable[[str], object]


class RemoteStore(Store):
    """Results at a URI; `folder` is a local copy.

    Args:
        uri: where the results go.
        note: receives that the store does not answer, and that it answers again.

    Raises:
        StoreError: the URI cannot be reached or read.
    """

    mirror: Mirror

    def __init__(self, uri: str, note: Note) -> None:
        self.mirror = Mirror(uri)
        super().__init__(self.mirror.folder, where=uri)
        self._objects, self._note = self.mirror.objects, note
        self._sweep = f"s{self.mirror.last_sweep + 1:06d}"
        self._numbers = itertools.count()
        self._unsent: dict[str, bytes] = {}
        """Name of an object that could not be uploaded yet -> its lines."""
        self._retry_at = 0.0
        """When to try again; 0 if the store answers."""
        self._is_closed = False

    def append(self, *records: RunRecord) -> bytes:
        """Add runs. They are then one object at the URI, or, while the store does not answer, on the local disk."""
        lines = super().append(*records)
        if not records:
            return lines
        what = records[0].run_id if len(records) == 1 else f"{len(records)}_runs"
        self._unsent[f"{RUNS_DIR}/{self._new_name(what)}.jsonl"] = lines
        if time.monotonic() >= self._retry_at:
            try:
                self._send()
            except StoreError as error:
                if not self._retry_at:
                    self.mirror.keep()
                    self._note(
                        f"{error} Runs are kept in {self.folder} meanwhile, and uploaded when it answers; the sweep "
                        "goes on."
                    )
                self._retry_at = time.monotonic() + _RETRY_S
        return lines

    def add_sessions(self, *sessions: Mapping[str, Any]) -> None:
        """Add what calls ask for, as one object, before anything starts.

        Raises:
            StoreError: nothing can be written at the URI.
        """
        try:
            super().add_sessions(*sessions)
            content = sweep_text({"sessions": list(map(dict, sessions))})
            self._objects.put(f"{SESSIONS_DIR}/{self._new_name()}.json", content.encode())
        except StoreError:
            self._is_closed = True  # no run has started, so there is nothing to upload
            raise

    def close(self) -> None:
        """Upload what is not there yet."""
        try:
            if not self._is_closed:
                self._is_closed = True
                if self._unsent:
                    self._send()
                self.mirror.push()
        except StoreError as error:
            self._note(self._incomplete(str(error)))
        except BaseException:
            if self._unsent:
                self._note(self._incomplete(f"{self.where} was not written to the end."))
            raise
        finally:
            super().close()

    def _new_name(self, *what: str) -> str:
        """A name that no other object has and that comes after all earlier ones."""
        return "-".join([self._sweep, f"{next(self._numbers):06d}", *what, uuid.uuid4().hex[:8]])

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
        self._unsent = {}
        if self._retry_at:
            self._retry_at = 0.0
            self.mirror.keep(False)
            self._note(f"{self.where} answers again, and has all runs that have ended.")
