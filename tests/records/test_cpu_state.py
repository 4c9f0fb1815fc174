from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.records import cpu_state
from dmls_ray.records.cpu_state import package_energy_j, read_cpu


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def sys_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of two cores and two packages, as Linux has them."""
    write(tmp_path / "cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    write(tmp_path / "cpu/cpu0/thermal_throttle/core_throttle_count", "2\n")
    write(tmp_path / "cpu/cpu1/thermal_throttle/core_throttle_count", "5\n")
    for package in (0, 1):
        write(tmp_path / f"powercap/intel-rapl:{package}/energy_uj", f"{package + 1}500000\n")
        write(tmp_path / f"powercap/intel-rapl:{package}:0/energy_uj", "7000000\n")
    write(tmp_path / "powercap/intel-rapl:0/constraint_0_power_limit_uw", "125000000\n")
    monkeypatch.setattr(cpu_state, "CPUS", tmp_path / "cpu")
    monkeypatch.setattr(cpu_state, "POWERCAP", tmp_path / "powercap")
    return tmp_path


def test_the_processor_is_read(sys_folders: Path) -> None:
    cpu = read_cpu()
    assert (cpu.governor, cpu.throttled, cpu.power_limit_w) == ("powersave", 5, 125.0)
    assert 1 <= cpu.cores <= cpu.logical
    assert cpu.load >= 0


def test_what_the_kernel_does_not_have_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_state, "CPUS", tmp_path)
    monkeypatch.setattr(cpu_state, "POWERCAP", tmp_path)
    cpu = read_cpu()
    assert (cpu.governor, cpu.throttled, cpu.power_limit_w) == ("", None, None)
    assert package_energy_j() == []


def test_the_energy_is_that_of_each_package_if_all_can_be_read(sys_folders: Path) -> None:
    assert package_energy_j() == [1.5, 2.5]
    (sys_folders / "powercap/intel-rapl:1/energy_uj").unlink()
    assert package_energy_j() == []
