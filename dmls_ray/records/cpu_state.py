"""What Linux says of the processor: load, clocks, throttling, power limits, energy. None where it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from dmls_ray.util.cores import usable_cores

CPUS = Path("/sys/devices/system/cpu")
POWERCAP = Path("/sys/class/powercap")
"""Intel's RAPL, which AMD's processors have, too (Linux, Documentation/power/powercap/powercap.rst). Often only root
may read its energy."""


@dataclass(frozen=True, kw_only=True)
class CpuState:
    """The processor of this machine."""

    cores: int
    """That this process may use."""
    logical: int
    physical: int | None
    load: float
    """Load average of the last minute."""
    mhz: float | None
    max_mhz: float | None
    governor: str
    """How the kernel chooses the clock; empty where unknown."""
    throttled: int | None
    """How often a core was slowed down by heat since the machine started, of the core with most."""
    power_limit_w: float | None
    """Of the first package."""


def read_cpu() -> CpuState:
    """The state of the processor."""
    mhz = max_mhz = None
    if hasattr(psutil, "cpu_freq") and (frequency := psutil.cpu_freq()):
        mhz, max_mhz = frequency.current or None, frequency.max or None  # 0 stands for unknown
    counts = []
    for path in CPUS.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"):
        count = _number(path)
        if count is not None:
            counts.append(int(count))
    limit_uw = _number(POWERCAP / "intel-rapl:0" / "constraint_0_power_limit_uw")
    return CpuState(
        cores=usable_cores(),
        logical=psutil.cpu_count() or 1,
        physical=psutil.cpu_count(logical=False),
        load=psutil.getloadavg()[0],
        mhz=mhz,
        max_mhz=max_mhz,
        governor=_text(CPUS / "cpu0" / "cpufreq" / "scaling_governor"),
        throttled=max(counts, default=None),
        power_limit_w=None if limit_uw is None else limit_uw / 1e6,
    )


def package_energy_j() -> list[float]:
    """Joules that each processor package of this machine has counted; empty without a meter that can be read.

    A counter begins again at 0 after some hundred kilojoules.
    """
    counted = []
    for path in sorted(POWERCAP.glob("intel-rapl:*")):
        if path.name.count(":") > 1:
            continue  # intel-rapl:0 is a package, intel-rapl:0:0 a part of it
        energy_uj = _number(path / "energy_uj")
        if energy_uj is None:
            return []
        counted.append(energy_uj / 1e6)
    return counted


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    text = _text(path)
    return float(text) if text.isdecimal() else None
