"""`request`: asks a template for a copy of its process. Loads little, since processes do that in place of a start."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

TEMPLATES = "DMLS_RAY_TEMPLATES"
"""Variable with the folder of the sockets of templates, for the processes of Ray."""
RUNS, WORKERS, COMMANDS = "runs", "workers", "commands"
"""Names of the sockets: of the template of the processes of runs, of that of Ray's worker processes, and of that of
commands, which `dmls-ray up` holds."""

HEADER_BYTES = 8
"""Size of the number before a request: the bytes that follow."""


_known = [""]


def know_templates(folder: str) -> None:
    """Let this process know the folder of the sockets of templates. Others that it starts learn nothing of them."""
    _known[0] = folder


def known_templates() -> str:
    """The folder of the sockets of templates that this process knows; empty without."""
    return _known[0]


def request(
    name: str,
    call: str,
    arguments: Sequence[Any],
    *,
    folder: str,
    descriptors: Sequence[int] = (),
    streams: Sequence[int] = (0, 1, 2),
    environment: Mapping[str, str] | None = None,
    path: Sequence[str] | None = None,
) -> socket.socket:
    """Ask a template for a copy that makes a call, and ends.

    It has this process's working folder and cores, and a session of its own.

    Args:
        name: of the socket of the template.
        call: `module:function`.
        arguments: of the function, after the descriptors; JSON.
        folder: of the sockets.
        descriptors: open files for the copy, which has them under other numbers.
        streams: its standard streams; by default, those of this process.
        environment: of the copy; by default, that of this process.
        path: module search path of the copy; by default, that of this process.

    Returns:
        A connection that ends when the copy ends.

    Raises:
        OSError: there is no template any more, or it is another user's.
    """
    asked = {
        "call": call,
        "arguments": arguments,
        "environment": dict(os.environ if environment is None else environment),
        "folder": os.getcwd(),
        "path": list(sys.path if path is None else path),
        "ignores_hangup": signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
        "cores": sorted(os.sched_getaffinity(0)),
    }
    body = json.dumps(asked).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.path.join(folder, name))
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid():
            raise PermissionError(f"{folder} is another user's")
        socket.send_fds(connection, [len(body).to_bytes(HEADER_BYTES)], [*streams, *descriptors])
        connection.sendall(body)
    except BaseException:
        connection.close()
        raise
    return connection
