"""The folder of caches, and a check of paths that come with a folder from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """The folder of downloads, decoded images and compiled kernels.

    It is $DMLS_RAY_CACHE, or `dmls_ray` in the user's cache folder.
    """
    configured = os.environ.get("DMLS_RAY_CACHE")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(configured).expanduser() if configured else user_cache / "dmls_ray"


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, with all its links followed, lies in a folder: a folder from elsewhere may contain any link."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a circle of links
        return False
