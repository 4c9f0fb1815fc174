"""End the wait of a rank for ranks on a machine that is gone, from which no packet comes any more."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection
from typing import Any

import psutil


def abort_pending_collectives(addresses: Collection[str]) -> None:
    """Let this process wait no more for what it expects from ranks that are lost.

    Called from another thread than the one that waits in a collective. gloo cannot end a pending operation (its
    groups' `abort` and `shutdown` return, and the operation goes on), but it ends when its connection does. Whatever
    else this process awaits from a machine that is gone is ended with it. NCCL's groups can be aborted.

    Args:
        addresses: of the machines of the lost ranks. If that is this machine, gloo reports the loss itself.
    """
    for connection in psutil.Process().net_connections(kind="tcp"):
        if connection.raddr and connection.fd >= 0:
            here, there = _plain(connection.laddr.ip), _plain(connection.raddr.ip)
            if there in addresses and here not in addresses:
                _shut(connection)
    _abort_nccl()


def _plain(address: str) -> str:
    """An IPv4 address without the prefix that maps it to IPv6."""
    return address.removeprefix("::ffff:")


def _shut(connection: Any) -> None:
    # Closed or given to another meanwhile; then there is nothing to wait for.
    with contextlib.suppress(OSError):
        duplicate = socket.socket(fileno=os.dup(connection.fd))
        try:
            if duplicate.getpeername()[:2] == tuple(connection.raddr):
                duplicate.shutdown(socket.SHUT_RDWR)
        finally:
            duplicate.close()


def _abort_nccl() -> None:
    import torch.distributed as dist

    if dist.is_initialized() and dist.get_backend() == "nccl":
        dist.distributed_c10d._abort_process_group()
