"""Folders for sockets, whose paths the system limits to about a hundred bytes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 103 if sys.platform == "darwin" else 107
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def room_above(below: str) -> int:
    """Bytes that the path of a folder may have where sockets have such a path below it."""
    return _LONGEST - len(os.fsencode(below))


def short_folders() -> Iterator[Path]:
    """The system's folders for temporary files whose paths are short, as far as this process may write there."""
    return (Path(folder) for folder in _SHORT_FOLDERS if os.access(folder, os.W_OK | os.X_OK))
