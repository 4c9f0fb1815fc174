"""`UtilizationSampler`: what a rank uses of its processor and its GPU, and how fast these run, sampled during a run."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from statistics import fmean
from typing import Any

import psutil
import torch

from dmls_ray.records.gpu_state import CLOCK_METRICS, clocks_of
from dmls_ray.training.cpu_use import CpuUse
from dmls_ray.training.memory import MIB
from dmls_ray.util.importing import missing_extra

PERIOD_S = 0.5
"""Seconds between two samples."""
MOST_POINTS = 240
"""Samples of a run at most; a longer run is sampled less often."""


class UtilizationSampler:
    """Samples while it is entered.

    `series` has one list per quantity, one value per sample: `at_s` since the start, `cpu_percent` of this process
    (100 is one core), `memory_mib` its resident set; on a GPU `gpu_percent` (share of time in which a kernel ran),
    `gpu_memory_mib` (in use on the device), `gpu_mhz`, and for each of `HELD_BY` whether that held the clocks down
    (1 or 0), by NVML.
    """

    def __init__(self, device: torch.device) -> None:
        self._process, self._cpu_use = psutil.Process(), CpuUse()
        self._gpu = nvml_handle(device) if device.type == "cuda" else None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="utilization")
        self.series: dict[str, list[float]] = {"at_s": [], "cpu_percent": [], "memory_mib": []}

    def __enter__(self) -> UtilizationSampler:
        self._began = time.monotonic()
        self._process.cpu_percent()  # the first call only starts the count
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        period = PERIOD_S
        while not self._ended.wait(period):
            self._sample()
            if len(self.series["at_s"]) >= MOST_POINTS:
                self.series = {name: values[1::2] for name, values in self.series.items()}
                period *= 2

    def _sample(self) -> None:
        point: dict[str, Any] = {
            "at_s": time.monotonic() - self._began,
            "cpu_percent": self._process.cpu_percent(),
            "memory_mib": self._process.memory_info().rss / MIB,
        }
        if self._gpu is not None:
            import pynvml

            point["gpu_percent"] = pynvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu
            point["gpu_memory_mib"] = pynvml.nvmlDeviceGetMemoryInfo(self._gpu).used / MIB
            point |= clocks_of(self._gpu)
        for name, value in point.items():
            self.series.setdefault(name, []).append(round(float(value), 2))

    def read(self) -> dict[str, float]:
        """The means of the clocks, and the cores of `CpuUse`."""
        means = {name: fmean(self.series[name]) for name in CLOCK_METRICS if self.series.get(name)}
        return means | self._cpu_use.read()


@functools.cache
def nvml_handle(device: torch.device) -> Any:
    """The NVML handle of the device, by its UUID, since NVML numbers devices differently; None without support."""
    if reason := missing_extra("pynvml", "gpu", "The GPU's utilization"):
        warnings.warn(reason, stacklevel=2)
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        pynvml.nvmlDeviceGetUtilizationRates(handle)
    except pynvml.NVMLError as error:
        # A slice of a GPU (MIG), for example; missing utilization must not end a run.
        warnings.warn(f"The GPU's utilization is not recorded: NVML says {error}.", stacklevel=2)
        return None
    return handle
