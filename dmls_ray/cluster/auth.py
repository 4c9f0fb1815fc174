"""Ray's token. It allows running code on the cluster, so only its owner may read its file."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from dmls_ray.util.errors import ClusterError

MODE = "RAY_AUTH_MODE"
"""Ray sends and asks for tokens where this variable is `token`."""


def keep_token_private(*, make: bool) -> None:
    """Make the token's file readable by its owner only; Ray itself makes it readable by all.

    Args:
        make: create a token if there is none; for a cluster that the sweep starts.

    Raises:
        ClusterError: the file can be read by others, and that cannot be changed; or none can be made.
    """
    # `ray.init("local")` enables token authentication by default; when joining a cluster only RAY_AUTH_MODE=token does.
    is_used = os.environ.get(MODE, "token" if make else "") == "token"
    if not is_used or os.environ.get("RAY_AUTH_TOKEN"):
        return
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        if make and not named:
            file.parent.mkdir(parents=True, exist_ok=True)
            # If another sweep creates the file first, its token is used.
            with suppress(FileExistsError), open(file, "x", encoding="utf-8", opener=_open_private) as opened:
                opened.write(secrets.token_hex(32))
        if file.exists() and file.stat().st_mode & 0o077:
            file.chmod(0o600)
    except OSError as error:
        raise ClusterError(
            f"Ray's token in {file} cannot be kept private ({error.strerror}); name a file that you own in "
            f"RAY_AUTH_TOKEN_PATH, or set {MODE}=disabled if no other user can reach this machine."
        ) from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
