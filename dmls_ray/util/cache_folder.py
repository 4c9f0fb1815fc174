"""The folder of downloads, decoded images and compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """$DMLS_RAY_CACHE, or `dmls_ray` in the user's cache folder."""
    configured = os.environ.get("DMLS_RAY_CACHE")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(configured).expanduser() if configured else user_cache / "dmls_ray"
