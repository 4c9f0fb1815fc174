"""The sweep of a scenario, and its command while it runs."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

import psutil

from tests.multihost.hosts import OnHost

_ROW = re.compile(r"^\[ *\d+/\d+\] (.+?): (\w+)")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The sweep of a scenario: two batches on one and on two ranks."""

    repeats: int
    stall_timeout_s: float = 600.0
    checkpoints: bool = False
    epochs: int = 5
    sizes: tuple[int, ...] = (1, 2)
    """Its world sizes."""

    @property
    def runs(self) -> int:
        """How many."""
        return 2 * len(self.sizes) * self.repeats

    @property
    def keys(self) -> set[tuple[int, int, int]]:
        """Batch, world size and repeat of each run."""
        return {(batch, size, repeat) for batch in (8, 16) for size in self.sizes for repeat in range(self.repeats)}

    @property
    def flags(self) -> list[str]:
        """The flags that do not depend on the place."""
        return [
            "--repeats", str(self.repeats), "--epochs", str(self.epochs), "--batch-per-rank", "8", "16",
            "--dataset", "synthetic:shape=1x8x8,classes=4,train=512,test=128", "--device", "cpu",
            "--threads-per-rank", "1", "--max-retries", "20", "--stall-timeout", f"{self.stall_timeout_s:g}",
            *(["--checkpoints"] if self.checkpoints else []),
        ]  # fmt: skip


class Command:
    """The sweep's command while it runs, with what it has printed."""

    def __init__(self, process: OnHost) -> None:
        self.process = process
        self.began = time.monotonic()
        self.lines: list[str] = []
        self.rows: list[tuple[float, str, str]] = []
        """Moment, name and outcome of each run that was reported."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if match := _ROW.match(line):
                self.rows.append((time.monotonic(), match[1], match[2]))

    @property
    def restarts(self) -> int:
        """How often the supervisor has started the sweep again."""
        return sum("the sweep starts again" in line for line in self.lines)

    @property
    def supervisor(self) -> psutil.Process | None:
        """The process of the command itself; None if it has ended."""
        try:
            # nsenter waits for it.
            return next(iter(psutil.Process(self.process.pid).children()), None)
        except psutil.NoSuchProcess:
            return None

    def has_ended(self) -> bool:
        """Whether the command has ended."""
        return self.process.poll() is not None

    def join(self) -> None:
        """Wait until everything is read that the command has printed."""
        self._reader.join()

    def end(self, patience_s: float = 40.0) -> None:
        """End the command as a person does: Ctrl-C, later kill."""
        if self.supervisor is not None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        self.join()
