"""A cgroup with a limit on memory, below that of this process, in either version of the interface."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


class CgroupError(Exception):
    """This machine lets this process make no cgroup with a limit on memory."""


class MemoryCgroup:
    """A new cgroup."""

    def __init__(self) -> None:
        parent, self._is_v1 = _own_memory_cgroup()
        self.path = parent / f"chaos-{uuid.uuid4().hex[:8]}"
        try:
            self.path.mkdir()
            self.limit(None)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.path.rmdir()
            raise CgroupError(f"no cgroup with a limit on memory can be made ({error})") from error

    def entered(self, words: list[str]) -> list[str]:
        """A command that runs in this cgroup, with all that it starts."""
        return ["sh", "-c", f'echo 0 >"{self.path}/cgroup.procs" && exec "$@"', "sh", *words]

    def limit(self, size: int | None) -> None:
        """Limit the bytes; None: as many as there are."""
        if self._is_v1:
            (self.path / "memory.limit_in_bytes").write_text(str(-1 if size is None else size))
        else:
            (self.path / "memory.max").write_text("max" if size is None else str(size))

    def used(self) -> int:
        """Bytes that cannot be given back: no cached files."""
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return int(stat["total_rss" if self._is_v1 else "anon"])

    def remove(self) -> None:
        """Remove the cgroup, whose processes have been ended."""
        until = time.monotonic() + 10
        while True:
            try:
                self.path.rmdir()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def _own_memory_cgroup() -> tuple[Path, bool]:
    """The cgroup of this process that limits memory, and whether it is of version 1."""
    entries = [line.split(":", 2) for line in Path(f"/proc/{os.getpid()}/cgroup").read_text().splitlines()]
    for _, controllers, path in entries:
        if "memory" in controllers.split(","):
            # In a container its own cgroup is mounted as the root.
            inner = _ROOT / "memory" / path.lstrip("/")
            return (inner if inner.is_dir() else _ROOT / "memory"), True
    for number, _, path in entries:
        inner = _ROOT / path.lstrip("/")
        if number == "0" and (inner / "cgroup.controllers").exists():
            # A cgroup with processes gives no controllers to others below it, so this is a neighbour.
            parent = inner if inner == _ROOT else inner.parent
            if "memory" in (parent / "cgroup.subtree_control").read_text().split():
                return parent, False
    raise CgroupError("no cgroup that limits memory is mounted at /sys/fs/cgroup")
