"""Which files of its working folder a run has written: the next run writes them again."""

from __future__ import annotations

import os
from collections.abc import Mapping

_MOST_FILES = 2000
"""Files of a working folder that are looked at; a folder of data may have millions."""
_DEPTH = 2
"""Folders below the working folder that are looked into."""
MOST_NAMED = 20

Stamps = Mapping[str, tuple[int, int]]
"""Path in the working folder -> time of the last change in ns, and size in bytes."""


def stamps_of(folder: str, left_out: str) -> Stamps:
    """The files of a folder and the folders in it, without hidden ones.

    Args:
        folder: the working folder.
        left_out: folder of the results; nothing in the part of the working folder that has it counts.
    """
    found: dict[str, tuple[int, int]] = {}
    folders = [(folder, 0)]
    while folders:
        here, depth = folders.pop()
        for entry in os.scandir(here):
            is_ours = os.path.commonpath([entry.path, left_out]) == entry.path
            if is_ours or entry.name.startswith((".", "__pycache__")) or entry.is_symlink():
                continue
            if entry.is_dir() and depth < _DEPTH:
                folders.append((entry.path, depth + 1))
            elif entry.is_file():
                about = entry.stat()
                found[os.path.relpath(entry.path, folder)] = about.st_mtime_ns, about.st_size
            if len(found) >= _MOST_FILES:
                return found
    return found


def written(before: Stamps, after: Stamps) -> list[str]:
    """The files that are new or have changed, the first in the order of their names."""
    return sorted(path for path, stamp in after.items() if before.get(path) != stamp)[:MOST_NAMED]
