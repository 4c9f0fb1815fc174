"""Which files of its working folder a run has written: the next run writes them again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

_MOST_ENTRIES = 5000
"""Entries of a working folder up to which it is looked at; a folder of data may have millions."""
_DEPTH = 2
"""Folders below the working folder that are looked into."""
MOST_NAMED = 20

Stamps = Mapping[str, tuple[int, int]]
"""Path in the working folder -> time of the last change in ns, and size in bytes."""


def stamps_of(folder: str, left_out: str) -> Stamps | None:
    """The files of a folder and the folders in it, without hidden ones; None where there are too many.

    Args:
        folder: the working folder.
        left_out: folder of the results; nothing in the part of the working folder that has it counts.
    """
    found: dict[str, tuple[int, int]] = {}
    folders, entries = [(folder, 0)], 0
    while folders:
        here, depth = folders.pop()
        # What cannot be read, or is gone by now, was not written by a run that has just ended.
        with suppress(OSError), os.scandir(here) as listed:
            for entry in listed:
                entries += 1
                if entries > _MOST_ENTRIES:
                    return None
                is_ours = os.path.commonpath([entry.path, left_out]) == entry.path
                if is_ours or entry.name.startswith((".", "__pycache__")) or entry.is_symlink():
                    continue
                if entry.is_dir() and depth < _DEPTH:
                    folders.append((entry.path, depth + 1))
                elif entry.is_file():
                    about = entry.stat()
                    found[os.path.relpath(entry.path, folder)] = about.st_mtime_ns, about.st_size
    return found


def written(before: Stamps | None, after: Stamps | None) -> list[str]:
    """The files that are new or have changed, the first in the order of their names."""
    if before is None or after is None:
        return []
    return sorted(path for path, stamp in after.items() if before.get(path) != stamp)[:MOST_NAMED]
