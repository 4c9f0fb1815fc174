"""Paths in a repository, as those in a copy of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def in_copy(path: str, root: Path, folder: Path) -> str:
    """The place in a copy of a repository that a path in it has; other paths as they are."""
    # The repository may have other names, by links that lead to it.
    for place, top in ((os.path.abspath(path), root), (os.path.realpath(path), root.resolve())):
        if Path(place).is_relative_to(top):
            return str(folder / Path(place).relative_to(top))
    return path


def word_in_copy(word: str, root: Path, folder: Path) -> str:
    """An argument that is a path in the repository, or ends in `=` and one, with that in the copy."""
    if os.path.isabs(word):
        return in_copy(word, root, folder)
    flag, found, path = word.partition(f"={os.sep}")
    return f"{flag}={in_copy(os.sep + path, root, folder)}" if found else word


def enter(root: Path, folder: Path) -> None:
    """Let this process work in a copy of a repository: its working folder, its imports and the paths in its variables
    are those of the copy.
    """
    for name, value in os.environ.items():
        # Also of lists of folders, as PATH and PYTHONPATH.
        words = [word_in_copy(word, root, folder) for word in value.split(os.pathsep)]
        os.environ[name] = os.pathsep.join(words)
    for number, entry in enumerate(sys.path):
        # Entries of environments, and folders that the copy lacks, stay as they are.
        moved = Path(in_copy(entry, root, folder))
        if moved.is_dir() and moved.resolve().is_relative_to(folder.resolve()):
            sys.path[number] = str(moved)
    here = in_copy(os.getcwd(), root, folder)
    os.makedirs(here, exist_ok=True)  # which the revision may lack
    os.chdir(here)
