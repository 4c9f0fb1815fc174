"""Memory of one rank during a run, as the operating system and the GPU's allocator count it.

The peak of the tensors alone, by kind, is measured by `further_steps`.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from dmls_ray.util.free_memory import free_mib

MIB = 2**20


class MemoryMeter:
    """Peaks of one run: allocated and reserved on a GPU, the resident set of the process on a Linux CPU.

    A CPU process keeps pages that earlier runs freed. They are returned to the system first, and the size at the
    start is recorded with the peak. If the kernel cannot reset the peak (not Linux), the peak is None.

    From here on, the process keeps the memory that a step frees.
    """

    def __init__(self, device: torch.device) -> None:
        keep_freed_pages()
        self._device = device
        self._free_mib: float | None = None
        self._highest: dict[str, float] = {}
        """Peaks in MiB: of the whole run (`peak`, `added`, `reserved`), and `training peak` and `training added`."""
        if device.type == "cuda":
            torch.cuda.init()  # before that, the allocator has no peaks to reset
            torch.cuda.reset_peak_memory_stats(device)
            self.start_mib = torch.cuda.memory_allocated(device) / MIB
            return
        release_free_pages()
        self._free_mib = free_mib()
        self.start_mib = psutil.Process().memory_info().rss / MIB
        self._mapped_mib = _mapped_mib()
        self._resettable = _reset_peak()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Within this context the run trains: the peak of training is the highest of all these times."""
        self._update()
        self._reset()
        yield
        self._update("training ")

    @contextmanager
    def outside_training(self) -> Iterator[None]:
        """Within this context, inside that of `training`, the run does not train."""
        self._update("training ")
        yield
        self._update()
        self._reset()

    def read(self, data_bytes: int = 0) -> dict[str, float | None]:
        """The peaks so far, as metrics.

        `device_mem_mib` and `host_mem_mib` are those of training, or of the whole run if `training` was never entered.

        Args:
            data_bytes: size of the data set that lies on the device.
        """
        self._update()
        peak = self._highest.get("peak")
        training = self._highest.get("training peak", peak)
        on_gpu = self._device.type == "cuda"
        return {
            "start_mem_mib": self.start_mib,
            "free_mem_mib": self._free_mib,
            "peak_mem_mib": peak,
            "peak_reserved_mib": self._highest.get("reserved"),
            "data_mib": data_bytes / MIB or None,
            "device_mem_mib": training - data_bytes / MIB if on_gpu and training is not None else None,
            "host_mem_mib": self._highest.get("training added", self._highest.get("added")),
        }

    def _reset(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            _reset_peak()

    def _update(self, part: str = "") -> None:
        """Take the peaks since the last reset into account, also for a part of the run."""
        for name, mib in self._peaks().items():
            for key in {name, f"{part}{name}"}:
                self._highest[key] = max(self._highest.get(key, 0.0), mib)

    def _peaks(self) -> dict[str, float]:
        """Peaks in MiB since the last reset; none if the kernel has none."""
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self._device) / MIB
            return {"peak": peak, "reserved": torch.cuda.max_memory_reserved(self._device) / MIB}
        resident = _status_mib("VmHWM") if self._resettable else None
        if resident is None:
            return {}
        # Pages of files are libraries and the decoded images. They count in the run that touches them first in its
        # process, and the size of the data set has a field. Those that are read later, as test images, do not count.
        pages_of_files = max(_mapped_mib() - self._mapped_mib, 0.0)
        return {"peak": resident, "added": max(resident - self.start_mib - pages_of_files, 0.0)}


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, from glibc's malloc.h."""
_MAPPED_FROM_MIB = 32
"""The most that glibc accepts."""
_KEPT_BYTES = 2**30
"""Free memory above which glibc returns the end of the heap to the system."""


def keep_freed_pages() -> None:
    """Let the allocator keep memory that a step frees for the next step; by default glibc returns it to the system.

    Its thresholds move with what the process has allocated before. So a step's page faults, which were 8% of its time
    in a convolutional network, depended on earlier runs and on the thread (docs/benchmarks.md). Both are set: where one
    is, glibc fixes the other at its low default. Blocks below the second one are on the heap, whose gaps make a
    resident set up to three times as large as its tensors.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc only
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_MIB * MIB)


def release_free_pages() -> None:
    """Return freed memory to the system, also that of this thread's arena; using it again costs page faults.

    The end of the arena of a thread is not in glibc's malloc_trim. It is returned when a block of at least 64 KiB is
    freed and more than the trim threshold is free.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):  # glibc only
        return
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    libc.mallopt(_M_TRIM_THRESHOLD, 0)
    libc.free(libc.malloc(96 * 1024))  # below the default threshold above which a block is not in the arena
    libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    libc.malloc_trim(0)


def _reset_peak() -> bool:
    # 5 resets the peak resident set (Linux, Documentation/filesystems/proc.rst).
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return False
    return True


def _mapped_mib() -> float:
    """Resident pages of files; those of a file system in memory count as shared memory."""
    return sum(_status_mib(name) or 0.0 for name in ("RssFile", "RssShmem"))


def _status_mib(name: str) -> float | None:
    """An entry of the process's status in MiB; None where the system has none."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    entry = re.search(rf"^{name}:\s*(\d+) kB", status, re.MULTILINE)
    return int(entry[1]) / 1024 if entry else None
