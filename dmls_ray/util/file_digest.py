"""`digest_of_files`: a digest of what files contain, kept in the cache until their paths, sizes or times change.

It is a digest of contents, so a copied folder has the digest of the original, on any machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_ISREG

from dmls_ray.util.atomic import atomic_write_text
from dmls_ray.util.paths import cache_root

_SETTLED_S = 2.0
"""Age from which a file's time identifies its content: a file that changes twice in a tick of the clock may keep it."""

_THREADS = 8
_DIGEST = re.compile(r"[0-9a-f]{32}")


def digest_of_files(root: str | Path, files: Iterable[str] | None = None) -> str:
    """A digest of names and contents of files, of 32 hexadecimal digits.

    Args:
        root: a folder, or one file.
        files: paths of files in the folder, which begin with it; by default all that are not hidden.

    Raises:
        OSError: a file cannot be read.
    """
    root = os.path.normpath(root)
    paths = sorted(files_below(root) if files is None else files)
    # A link may lead nowhere.
    stats = [(path, stat) for path in paths if os.path.exists(path) and S_ISREG((stat := os.stat(path)).st_mode)]
    names = {path: path.removeprefix(root) for path, _ in stats}

    # Reading takes long for large files, and looking at sizes and times does not.
    seen = hashlib.sha256(f"{os.path.realpath(root)}\n".encode(errors="surrogateescape"))
    for path, stat in stats:
        seen.update(f"{names[path]}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    kept = cache_root() / "digests" / seen.hexdigest()
    # A power failure may have left an empty file.
    if kept.exists() and _DIGEST.fullmatch(known := kept.read_text(encoding="utf-8", errors="replace")):
        return known

    with ThreadPoolExecutor(_THREADS) as pool:
        together = hashlib.sha256()
        for path, content in zip(names, pool.map(_digest_of_file, names), strict=True):
            together.update(f"{names[path]}\0{content}\n".encode(errors="surrogateescape"))
    digest = together.hexdigest()[:32]
    newest = max((stat.st_mtime for _, stat in stats), default=0.0)
    if newest < time.time() - _SETTLED_S:
        kept.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(kept, digest)
    return digest


def files_below(root: str) -> list[str]:
    """The files below a folder, links followed, without hidden ones; of a file, itself."""
    if os.path.isfile(root):
        return [root]
    found: list[str] = []
    entered = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        entered.add(os.path.realpath(folder))
        # A link may lead back to a folder above. In order, since of two links to one folder the first is followed.
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".") and os.path.realpath(os.path.join(folder, name)) not in entered
        ]
        found += [os.path.join(folder, name) for name in names if not name.startswith(".")]
    return found


def _digest_of_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
