"""Abort collectives that wait for ranks on a lost machine."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection
from typing import Any

import psutil


def abort_pending_collectives(addresses: Collection[str]) -> None:
    """Abort the collectives of this process that wait for lost ranks.

    Call it from a thread that does not wait in a collective. gloo cannot abort a pending operation: `abort` and
    `shutdown` of its groups return while the operation continues. The operation ends with its connection, so every
    TCP connection to a lost machine is shut. NCCL's groups can be aborted.

    Args:
        addresses: IP addresses of the lost machines. gloo itself reports the loss of a rank on this machine.
    """
    for connection in psutil.Process().net_connections(kind="tcp"):
        if connection.raddr and connection.fd >= 0:
            local, remote = _plain(connection.laddr.ip), _plain(connection.raddr.ip)
            if remote in addresses and local not in addresses:
                _shut(connection)
    _abort_nccl()


def _plain(address: str) -> str:
    """Convert ::ffff:1.2.3.4 to 1.2.3.4."""
    return address.removeprefix("::ffff:")


def _shut(connection: Any) -> None:
    # The descriptor may have been closed or reused since then.
    with contextlib.suppress(OSError):
        duplicate = socket.socket(fileno=os.dup(connection.fd))
        try:
            if duplicate.getpeername()[:2] == tuple(connection.raddr):
                duplicate.shutdown(socket.SHUT_RDWR)
        finally:
            duplicate.close()


def _abort_nccl() -> None:
    import torch.distributed as dist

    from dmls_ray.training.compat import abort_process_group

    if dist.is_initialized() and dist.get_backend() == "nccl":
        abort_process_group()
