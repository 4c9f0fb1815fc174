"""The cluster that `ray start` runs on this machine, by the file in which Ray keeps its address.

Ray makes the file's folder writable for every user of the machine, so the file may come from anyone. A sweep that
believed it would run code of whoever wrote it, and would send them the user's token.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from dmls_ray.cluster.address_check import no_answer, raylet_commands
from dmls_ray.cluster.local_cluster import temporary_folder_of_ray

_LONGEST_ADDRESS = 1000
_LISTENS = "0A"
"""State of a listening socket in Linux's tables of sockets."""


class _UntrustedError(Exception):
    """The file, or what it names, may be another user's; the text says why."""


def current_cluster(notify: Callable[[str], None]) -> str | None:
    """The address of the cluster that this user, or root, runs on this machine with `ray start`; None if there is none.

    Args:
        notify: receives one line about a cluster of another user, which is not joined.
    """
    # `ray start` writes this file, and `ray stop` removes it; a machine that went down does not.
    path = temporary_folder_of_ray()[1] / "ray" / "ray_current_cluster"
    try:
        address = _read_trusted(path)
        if address is None or no_answer(address) is not None:
            return None
        _check_listener(address)
    except _UntrustedError as error:
        notify(
            f"The Ray cluster that {path} names is not joined: {error}. --address HOST:PORT joins a cluster; "
            "--address local hides this line."
        )
        return None
    return address


def _read_trusted(path: Path) -> str | None:
    """The content of a regular file of this user or of root; None if there is no file.

    Raises:
        _UntrustedError: it is another user's, no regular file, or unreadable.
    """
    try:
        # O_NONBLOCK: to open a pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _UntrustedError(f"the file cannot be read ({error.strerror})") from error
    try:
        status = os.fstat(handle)
        if status.st_uid not in _trusted_users():
            raise _UntrustedError(f"the file belongs to {_name_of(status.st_uid)}")
        if not stat.S_ISREG(status.st_mode):
            raise _UntrustedError("it is no regular file")
        return os.read(handle, _LONGEST_ADDRESS).decode(errors="replace").strip()
    finally:
        os.close(handle)


def _check_listener(address: str) -> None:
    """Refuse an address at which another may listen by now: the file may be older than its cluster's end.

    Raises:
        _UntrustedError: the listener is another user's, or on another machine of whose cluster no node runs here.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or host.strip("[]") not in _own_addresses():
        # After a restart this machine, or the other, may have another address.
        if not any(f"--gcs-address={address}" in words for words in raylet_commands(_trusted_users())):
            raise _UntrustedError("no node of it runs on this machine")
        return
    others = set(_listeners(int(port))) - _trusted_users()
    if others:
        raise _UntrustedError(f"the process that listens at {address} belongs to {_name_of(min(others))}")


def _own_addresses() -> set[str]:
    return {item.address.partition("%")[0] for items in psutil.net_if_addrs().values() for item in items}


def _listeners(port: int) -> Iterator[int]:
    """The users whose sockets listen at a port; none where the system has no such tables (macOS)."""
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in Path("/proc/net", table).read_text(encoding="utf-8").splitlines()[1:]:
                _, local, _, state, _, _, _, user, *_ = line.split()
                if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                    yield int(user)


def _trusted_users() -> set[int]:
    return {os.getuid(), 0}


def _name_of(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
