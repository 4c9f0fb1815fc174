"""Ray's token. It allows running code on the cluster, so only its owner may read its file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from dmls_ray.util.errors import ClusterError

MODE = "RAY_AUTH_MODE"
"""Ray sends and asks for tokens where this variable is `token`."""

_VALUE, _PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def has_token() -> bool:
    """Whether this machine has a token for Ray."""
    if os.environ.get(_VALUE):
        return True
    file = _file()
    return file.is_file() and bool(file.read_text(encoding="utf-8").strip())


def keep_token_private(*, make: bool = False) -> None:
    """Make the token's file readable by its owner only; Ray itself makes it readable by all.

    Args:
        make: create a token if there is none; for a cluster that the sweep starts.

    Raises:
        ClusterError: the file can be read by others, and that cannot be changed; or none can be made.
    """
    # `ray.init("local")` enables token authentication by default; when joining a cluster only RAY_AUTH_MODE=token does.
    if os.environ.get(_VALUE) or os.environ.get(MODE, "token" if make else "") != "token":
        return
    file = _file()
    if make and not file.exists() and not os.environ.get(_PATH):
        _make(file)
    if not file.exists() or not file.stat().st_mode & 0o077:
        return
    try:
        file.chmod(0o600)
    except OSError as error:
        raise ClusterError(
            f"Ray's token in {file} can be read by others, and this user cannot change it ({error.strerror}); chmod "
            f"600 {file}, or copy it to a file that you own and name that file in {_PATH}."
        ) from error


def _file() -> Path:
    """The file that Ray reads if the variable has no token."""
    named = os.environ.get(_PATH)
    return Path(named) if named else Path.home() / ".ray" / "auth_token"


def _make(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Created with its final permissions. If another sweep creates the file first, its token is used.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise ClusterError(
            f"Ray's token cannot be written to {file} ({error.strerror}); name a file that you own in {_PATH}, or set "
            f"{MODE}=disabled if no other user can reach this machine."
        ) from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(secrets.token_hex(32))
