"""Checks of paths that come with a folder from elsewhere."""

from __future__ import annotations

from pathlib import Path


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, with all its links followed, lies in a folder: a folder from elsewhere may contain any link."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a circle of links
        return False
