"""What NVML says of GPUs: clocks and what holds them down, energy, power limits, memory errors, links between them.

Readings are plain values; None stands for what a GPU, its driver or this environment cannot tell.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HELD_BY: Mapping[str, int] = {"power": 0x04 | 0x80, "heat": 0x20 | 0x40, "hardware": 0x08}
"""What holds clocks down -> bits of NVML's clock event reasons (nvml.h): the power limit or a power brake; temperature;
a slowdown by the hardware, which newer GPUs also report as one of these. The other reasons are no fault: an idle GPU,
and clocks that somebody has set."""

CLOCK_METRICS = ("gpu_mhz", *(f"held_by_{name}" for name in HELD_BY))
"""Metrics of the clocks of a run: the mean clock, and in which share of the samples each of `HELD_BY` held it down."""


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """One GPU."""

    name: str
    mhz: float | None = None
    """Clock of the multiprocessors."""
    max_mhz: float | None = None
    reasons: int | None = None
    """NVML's clock event reasons, as bits."""
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    celsius: float | None = None
    is_ecc_on: bool | None = None
    uncorrected_errors: int | None = None
    """Memory errors since the driver was loaded that ECC could not correct."""


def held_by(reasons: int) -> list[str]:
    """What holds the clocks down, by NVML's clock event reasons: names of `HELD_BY`."""
    return [name for name, bits in HELD_BY.items() if reasons & bits]


def open_gpus() -> list[Any]:
    """The NVML handles of this machine's GPUs; none without a driver, or without nvidia-ml-py."""
    if importlib.util.find_spec("pynvml") is None:
        return []
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


def read_nvml(function: str, *arguments: Any) -> Any:
    """What a function of NVML returns; None where the GPU or its driver does not support it."""
    import pynvml

    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError:
        return None


def clock_mhz(gpu: Any) -> float | None:
    """The clock of the multiprocessors of a GPU, by its handle."""
    return read_nvml("nvmlDeviceGetClockInfo", gpu, 1)  # NVML_CLOCK_SM


def clock_reasons(gpu: Any) -> int | None:
    """Why the clocks are not higher, as bits. By the older of two names, which all drivers know."""
    return read_nvml("nvmlDeviceGetCurrentClocksThrottleReasons", gpu)


def clocks_of(gpu: Any) -> dict[str, float]:
    """The clock of a GPU and, as 1 or 0, what holds it down, by the names of `CLOCK_METRICS`, as far as it is known."""
    mhz, reasons = clock_mhz(gpu), clock_reasons(gpu)
    found = {} if mhz is None else {"gpu_mhz": float(mhz)}
    if reasons is not None:
        for name, bits in HELD_BY.items():
            found[f"held_by_{name}"] = float(bool(reasons & bits))
    return found


def energy_j(gpu: Any) -> float | None:
    """Joules that a GPU has consumed since its driver was loaded (Volta and later)."""
    return _thousandth(read_nvml("nvmlDeviceGetTotalEnergyConsumption", gpu))


def read_gpu(gpu: Any) -> GpuState:
    """The state of a GPU, by its handle."""
    ecc = read_nvml("nvmlDeviceGetEccMode", gpu)
    return GpuState(
        name=read_nvml("nvmlDeviceGetName", gpu) or "GPU",
        mhz=clock_mhz(gpu),
        max_mhz=read_nvml("nvmlDeviceGetMaxClockInfo", gpu, 1),
        reasons=clock_reasons(gpu),
        power_limit_w=_thousandth(read_nvml("nvmlDeviceGetPowerManagementLimit", gpu)),
        default_power_limit_w=_thousandth(read_nvml("nvmlDeviceGetPowerManagementDefaultLimit", gpu)),
        celsius=read_nvml("nvmlDeviceGetTemperature", gpu, 0),  # NVML_TEMPERATURE_GPU
        is_ecc_on=ecc and bool(ecc[0]),  # current and pending
        # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
        uncorrected_errors=read_nvml("nvmlDeviceGetTotalEccErrors", gpu, 1, 0),
    )


def peer_links(gpus: Sequence[Any]) -> dict[str, bool | None]:
    """`0-1` -> whether the two GPUs can read each other's memory, of each pair."""
    links = {}
    for (first, gpu), (second, other) in itertools.combinations(enumerate(gpus), 2):
        status = read_nvml("nvmlDeviceGetP2PStatus", gpu, other, 0)  # NVML_P2P_CAPS_INDEX_READ
        links[f"{first}-{second}"] = None if status is None else status == 0
    return links


def _thousandth(value: float | None) -> float | None:
    """A value in milliwatts or millijoules, in watts or joules."""
    return None if value is None else value / 1000
