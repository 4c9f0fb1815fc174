from __future__ import annotations

from typing import Any

import pynvml
import pytest

from dmls_ray.records.gpu_state import GpuState, clocks_of, held_by, open_gpus, peer_links, read_gpu

H100: dict[str, Any] = {
    "nvmlInit": lambda: None,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": lambda gpu: "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetClockInfo": lambda gpu, clock: {pynvml.NVML_CLOCK_SM: 1455}[clock],
    "nvmlDeviceGetMaxClockInfo": lambda gpu, clock: {pynvml.NVML_CLOCK_SM: 1980}[clock],
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x04,
    "nvmlDeviceGetPowerManagementLimit": lambda gpu: 500_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu: 700_000,
    "nvmlDeviceGetTemperature": lambda gpu, sensor: {pynvml.NVML_TEMPERATURE_GPU: 67}[sensor],
    "nvmlDeviceGetEccMode": lambda gpu: [1, 1],
    "nvmlDeviceGetTotalEccErrors": lambda gpu, error, counter: 3 if (error, counter) == (1, 0) else 99,
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: 5_000,
    "nvmlDeviceGetP2PStatus": lambda gpu, other, index: pynvml.NVML_P2P_STATUS_OK,
}
"""Two GPUs as NVML describes them, whose power is limited."""


def refuse(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, answer in H100.items():
        monkeypatch.setattr(pynvml, name, answer)
    return monkeypatch


def test_a_gpu_is_read(nvml: pytest.MonkeyPatch) -> None:
    assert [read_gpu(gpu) for gpu in open_gpus()] == 2 * [
        GpuState(
            name="NVIDIA H100 80GB HBM3", mhz=1455, max_mhz=1980, reasons=4, power_limit_w=500.0,
            default_power_limit_w=700.0, celsius=67, is_ecc_on=True, uncorrected_errors=3,
        )
    ]  # fmt: skip


def test_what_a_gpu_does_not_support_is_unknown(nvml: pytest.MonkeyPatch) -> None:
    for name in H100.keys() - {"nvmlInit", "nvmlDeviceGetName"}:
        nvml.setattr(pynvml, name, refuse)
    assert read_gpu(0) == GpuState(name="NVIDIA H100 80GB HBM3")
    assert clocks_of(0) == {}
    assert peer_links([0, 1]) == {"0-1": None}


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_without_a_driver_there_is_no_gpu(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(error)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert open_gpus() == []


def test_reasons_are_those_of_nvml_that_hold_clocks_down() -> None:
    assert held_by(pynvml.nvmlClocksEventReasonSwPowerCap) == ["power"]
    assert held_by(pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown | pynvml.nvmlClocksEventReasonHwSlowdown) == [
        "power", "hardware",
    ]  # fmt: skip
    for reason in (pynvml.nvmlClocksEventReasonSwThermalSlowdown, pynvml.nvmlClocksEventReasonHwThermalSlowdown):
        assert held_by(reason) == ["heat"]
    for reason in (
        pynvml.nvmlClocksEventReasonNone,
        pynvml.nvmlClocksEventReasonGpuIdle,
        pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        pynvml.nvmlClocksEventReasonSyncBoost,
        pynvml.nvmlClocksEventReasonDisplayClockSetting,
    ):
        assert held_by(reason) == []


def test_each_pair_of_gpus_can_or_cannot_read_the_others_memory(nvml: pytest.MonkeyPatch) -> None:
    assert peer_links([0, 1, 2]) == {"0-1": True, "0-2": True, "1-2": True}
    nvml.setattr(pynvml, "nvmlDeviceGetP2PStatus", lambda gpu, other, index: pynvml.NVML_P2P_STATUS_GPU_NOT_SUPPORTED)
    assert peer_links([0, 1]) == {"0-1": False}
