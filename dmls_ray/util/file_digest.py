"""`digest_of_files`: a digest of what files contain, kept in the cache until their paths, sizes or times change.

It is a digest of contents, so a copied folder has the digest of the original, on any machine.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dmls_ray.util.atomic import atomic_write_text
from dmls_ray.util.paths import cache_root

_SETTLED_S = 2.0
"""Age from which a file's time identifies its content: a file that changes twice in a tick of the clock may keep it."""

_THREADS = 8


def digest_of_files(root: str | Path, files: Iterable[str] | None = None) -> str:
    """A digest of names and contents of files, of 32 hexadecimal digits.

    Args:
        root: a folder, or one file.
        files: paths of files in the folder, which begin with it; by default all that are not hidden.

    Raises:
        OSError: a file cannot be read.
    """
    root = os.path.normpath(root)
    names: dict[str, str] = {}
    newest = 0.0
    # Reading takes long for large files, and looking at sizes and times does not.
    seen = hashlib.sha256(f"{os.path.realpath(root)}\n".encode(errors="surrogateescape"))
    for path in sorted(files_below(root) if files is None else files):
        if not os.path.isfile(path):  # a pipe, or a link that leads nowhere
            continue
        stat = os.stat(path)
        newest = max(newest, stat.st_mtime)
        names[path] = path.removeprefix(root)
        seen.update(f"{names[path]}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    kept = cache_root() / "digests" / seen.hexdigest()
    if kept.exists():
        return kept.read_text(encoding="utf-8")

    together = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS) as pool:
        for path, content in zip(names, pool.map(_digest_of_file, names), strict=True):
            together.update(f"{names[path]}\0{content}\n".encode(errors="surrogateescape"))
    digest = together.hexdigest()[:32]
    if newest < time.time() - _SETTLED_S:
        kept.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(kept, digest, durable=True)
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
