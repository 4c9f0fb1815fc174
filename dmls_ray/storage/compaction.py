"""Merge of the runs at a URI, each an object, into its `runs.jsonl`, while other sweeps may do the same.

An object store has no append and no lock. Yet no run is lost:

- runs.jsonl is written whole: its present content, then the lines of the objects that exist. Only then are these
  objects deleted, and no others. After a death in between, a line is in both places, and counts once.
- Two processes at once could each write a runs.jsonl without the lines whose objects the other has just deleted. So a
  process first writes a claim, and then lists all claims. Where there is another one, it leaves its runs as objects.
  It deletes its claim last. Of two processes with claims at the same time, the later to list sees both claims, so two
  never write at the same time. Possibly neither writes; then the next sweep merges all runs.

Two limits remain. A claim that is an hour old counts as that of a dead process, and a process gives up ten minutes
after its claim. A list must show all earlier writes, as it does on S3, GCS, Azure and local disks; some network file
systems show a write only seconds later.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

from dmls_ray.storage.mirror import Mirror, is_record
from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.storage.runs_file import RUNS, merge_lines
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below

CLAIMS_DIR = "compacting"

_CLAIM_EXPIRES_S = 3600.0
_CLAIM_VALID_S = 600.0


def compact(mirror: Mirror, lines: Mapping[str, bytes]) -> bytes | None:
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
