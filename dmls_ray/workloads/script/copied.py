"""Which files of a repository are copied for the runs of a revision, and which are linked.

Links are followed where they lead out of the repository, since a run would write through them. Environments, and what
the user shares, are linked. Results of dmls_ray and what git and Python keep for themselves are left out.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.files import cache_root
from dmls_ray.util.mirror import Entry, can_clone

MOST_BYTES = 2**30
"""Bytes up to which files are copied that git does not track, where the file system cannot let copies share them."""
MOST_FILES = 20_000
"""Files up to which they are: each run looks whether they are as they were, 10 microseconds each."""

_LEFT_OUT = (".git", "__pycache__")
_MARKS_OF_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_LOOKED_AT = 100_000
"""Files after which those of one name are counted no further."""


@dataclass
class _Size:
    """What is copied under one name."""

    files: int = 0
    bytes: int = 0


class CopiedFiles:
    """The picture of a copy.

    Args:
        root: the repository.
        shared: paths in it that are linked.
    """

    def __init__(self, root: Path, shared: Collection[str]) -> None:
        self.picture: dict[str, Entry] = {}
        self._root, self._shared = root, shared
        self._place = root
        """The folder that has what git tracks."""
        self._cache = os.path.realpath(cache_root())

    def add_tracked(self, paths: Iterable[str], place: Path) -> None:
        """Add what git tracks.

        Args:
            paths: paths in the repository.
            place: the folder that has them: the repository, or a copy of it.
        """
        self._place = place
        for path in paths:
            self._add(path, str(place / path), _Size())

    def add_untracked(self, paths: Iterable[str]) -> None:
        """Add what is shared, and the files and folders that git does not track and that take no tracked one's place.

        Raises:
            ConfigError: they are too large, or git tracks what is to be shared.
        """
        for path in self._shared:
            if path in self.picture:
                raise ConfigError(
                    f"--share {path}: git tracks it, so each run has the version of its revision; leave it out."
                )
            self._add(path, str(self._root / path), _Size())
        sizes = {}
        for path in paths:
            name = path.rstrip("/")
            sizes[name] = _Size()
            self._add(name, str(self._root / name), sizes[name])
        self._check(sizes)

    def _add(self, path: str, source: str, size: _Size, followed: tuple[tuple[str, str], ...] = ()) -> None:
        """Add a file, a link or a folder.

        Args:
            path: where it is in the copy.
            source: where it is now.
            size: counts it.
            followed: each folder outside of the repository that has it, and where that one is in the copy.
        """
        if os.path.basename(path) in _LEFT_OUT or size.files > _LOOKED_AT or not self._has_place(path):
            return
        if path in self._shared:
            self.picture.setdefault(path, Entry.of_link(str(self._root / path)))
            return
        try:
            about = os.lstat(source)
            if stat.S_ISLNK(about.st_mode):
                self._add_link(path, source, size, followed)
            elif stat.S_ISDIR(about.st_mode):
                self._add_folder(path, source, size, followed)
            elif stat.S_ISREG(about.st_mode) and os.access(source, os.R_OK):
                self.picture.setdefault(path, Entry.of_file(source, about))
                size.files += 1
                size.bytes += about.st_size
        except (FileNotFoundError, PermissionError):
            pass  # it has gone meanwhile, or a run could not read it either

    def _has_place(self, path: str) -> bool:
        """Whether no file or link is in its place or above it in the copy; makes the folders above it."""
        parents = [*reversed(Path(path).parents)][1:]
        for parent in parents:
            entry = self.picture.setdefault(str(parent), Entry(str(self._root / parent)))
            if not entry.is_folder:
                return False
        return path not in self.picture or self.picture[path].is_folder

    def _add_folder(self, path: str, source: str, size: _Size, followed: tuple[tuple[str, str], ...]) -> None:
        names = os.listdir(source)
        is_of_results = "sweep.json" in names and not {RUNS, ".lock"}.isdisjoint(names)
        if is_of_results or os.path.realpath(source) == self._cache:
            return
        if not {*_MARKS_OF_ENVIRONMENT}.isdisjoint(names):
            self.picture.setdefault(path, Entry.of_link(source))
            return
        self.picture.setdefault(path, Entry(source))
        for name in sorted(names):
            self._add(f"{path}/{name}", os.path.join(source, name), size, followed)

    def _add_link(self, path: str, source: str, size: _Size, followed: tuple[tuple[str, str], ...]) -> None:
        """Add a link to what is in the copy, too, or else what the link leads to."""
        # A link of the copy leads where one in its place in the repository would.
        here = str(self._root / path) if source == str(self._place / path) else source
        target = os.path.normpath(os.path.join(os.path.dirname(here), os.readlink(source)))
        for folder, place in ((str(self._root), "."), *followed):
            if target == folder or target.startswith(folder + os.sep):
                inside = os.path.join(place, os.path.relpath(target, folder))
                text = os.path.relpath(inside, os.path.dirname(path) or ".")
                self.picture.setdefault(path, Entry.of_link(text))
                return
        if not os.path.exists(target):
            return  # a run would make it, outside of its copy
        if os.path.isdir(target):
            followed = (*followed, (target, path))
        self._add(path, target, size, followed)

    def _check(self, sizes: Mapping[str, _Size]) -> None:
        """
        Raises:
            ConfigError: what is copied is too large.
        """
        files = sum(size.files for size in sizes.values())
        total = sum(size.bytes for size in sizes.values())
        if files > MOST_FILES:
            name = max(sizes, key=lambda name: sizes[name].files)
            has, limit, part = _files(files), _files(MOST_FILES), _files(sizes[name].files)
        elif total > MOST_BYTES:
            name = max(sizes, key=lambda name: sizes[name].bytes)
            has, limit, part = _gib(total), _gib(MOST_BYTES), _gib(sizes[name].bytes)
            entries = [entry for path, entry in self.picture.items() if path == name or path.startswith(f"{name}/")]
            sources = [entry.source for entry in entries if entry.mode]
            if sources and can_clone(sources[0], cache_root()):
                return  # copies need no room
        else:
            return
        raise ConfigError(
            f"{self._root} has {has} that git does not track, but at most {limit} are copied for runs of a --revision; "
            f"{name} has {part}: --share {shlex.quote(name)} lets runs read it in place."
        )


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"


def _files(count: int) -> str:
    return f"{count:,} files" if count <= _LOOKED_AT else f"more than {_LOOKED_AT:,} files"
