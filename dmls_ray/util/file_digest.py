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


def digest_of_files(root: Path, files: Iterable[Path] | None = None) -> str:
    """A digest of names and contents of files, of 32 hexadecimal digits.

    Args:
        root: a folder, or one file.
        files: the files of the folder; by default all of them that are not hidden.

    Raises:
        OSError: a file cannot be read.
    """
    root = root.resolve()
    paths = sorted(files_below(root) if files is None else files)
    stats = [path.stat() for path in paths]
    names = [os.path.relpath(path, root) for path in paths]

    # Reading takes long for large files, and looking at sizes and times does not.
    seen = hashlib.sha256(f"{root}\n".encode())
    for name, stat in zip(names, stats, strict=True):
        seen.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    kept = cache_root() / "digests" / seen.hexdigest()
    if kept.exists():
        return kept.read_text()

    with ThreadPoolExecutor(_THREADS) as pool:
        contents = pool.map(_digest_of_file, paths)
        together = hashlib.sha256()
        for name, content in zip(names, contents, strict=True):
            together.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    digest = together.hexdigest()[:32]
    newest = max((stat.st_mtime for stat in stats), default=0.0)
    if newest < time.time() - _SETTLED_S:
        kept.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(kept, digest)
    return digest


def files_below(root: Path) -> list[Path]:
    """The regular files below a folder, links followed, without hidden ones; of a file, itself."""
    if root.is_file():
        return [root]
    found, entered = [], set()
    for folder, folders, names in os.walk(root, followlinks=True):
        entered.add(os.path.realpath(folder))
        # A link may lead back to a folder above.
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and os.path.realpath(os.path.join(folder, name)) not in entered
        ]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return [path for path in found if path.is_file()]


def _digest_of_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
