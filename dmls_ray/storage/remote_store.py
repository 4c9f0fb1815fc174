"""Results at a URI that a sweep writes to: one immutable object a run, and one for the session of the call.

An object store has no append and no lock, so several sweeps may write to one location at the same time. No run of
theirs is lost, since no object with a run or a session is ever changed or deleted: a run is an object with a unique
name before `append` returns, and readers read all objects (`mirror`). Where an upload failed, objects that may have
arrived are sent again with the same content.

A list must show all earlier writes, as it does on S3, GCS and Azure.

Two sweeps at the same time run the same configurations twice: give each a different --out.
"""

from __future__ import annotations

import itertools
import shlex
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import Store
from dmls_ray.storage.mirror import RUNS_DIR, SESSIONS_DIR, Mirror
from dmls_ray.storage.sweep_file import sweep_text
from dmls_ray.util.errors import StoreError

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
        self._sweep = f"s{self.mirror.last_sweep + 1:06d}"
        self._numbers = itertools.count()
        self._sent: set[str] = set()
        """Names of the objects that this store has written."""
        self._unsent: dict[str, bytes] = {}
        """Name of an object that could not be uploaded yet -> its lines."""
        self._retry_at = 0.0
        self._is_closed = False

    def append_all(self, records: Sequence[RunRecord]) -> bytes:
        """Add runs. They are then one object at the URI, or, while the store does not answer, on the local disk."""
        lines = super().append_all(records)
        if not records:
            return lines
        what = records[0].run_id if len(records) == 1 else f"{len(records)}_runs"
        self._unsent[f"{RUNS_DIR}/{self._sweep}-{next(self._numbers):06d}-{what}-{_unique()}.jsonl"] = lines
        if (began := time.monotonic()) >= self._retry_at:
            try:
                self._send()
            except StoreError as error:
                if not self._retry_at:
                    self.mirror.keep()
                    self._note(
                        f"{error} Runs are kept in {self.folder} meanwhile, and uploaded when it answers; the sweep "
                        "goes on."
                    )
                ended = time.monotonic()
                self._retry_at = ended + max(_RETRY_S, _RETRY_SHARE * (ended - began))
        return lines

    def add_sessions(self, sessions: Sequence[Mapping[str, Any]]) -> None:
        """Add what calls ask for, as one object, before anything starts.

        Raises:
            StoreError: nothing can be written at the URI.
        """
        try:
            super().add_sessions(sessions)
            name = f"{SESSIONS_DIR}/{self._sweep}-{next(self._numbers):06d}-{_unique()}.json"
            self._objects.put(name, sweep_text({"sessions": list(map(dict, sessions))}).encode())
        except StoreError:
            self._is_closed = True  # no run has started, so there is nothing to upload
            raise

    def close(self) -> None:
        """Upload what is not there yet."""
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
        if self.mirror.new_run_objects() - self._sent:
            self._note(
                f"Another sweep has written runs to {self.where} meanwhile; they are kept, too. Two sweeps at once run "
                "the same twice and disturb each other's times: give each a different --out."
            )
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
            self.mirror.release()
            self._note(f"{self.where} answers again, and has all runs that have ended.")
        self._retry_at = 0.0
        self._sent |= self._unsent.keys()
        self._unsent = {}


def _unique() -> str:
    return uuid.uuid4().hex[:8]
