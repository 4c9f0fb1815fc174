from __future__ import annotations

import types

import pynvml
import pytest

from dmls_ray.records.provenance import describe_machine, hardware_key


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one GPU of 80 GiB and one of 24, as NVML describes them."""
    total = {0: 80 * 2**30, 1: 24 * 2**30}
    for name, answer in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=total[handle]),
        "nvmlSystemGetDriverVersion": lambda: "575.1",
    }.items():
        monkeypatch.setattr(pynvml, name, answer)


def describe() -> dict[str, object]:
    return describe_machine.__wrapped__()  # not the machine that an earlier test has found


def test_a_machine_is_described_with_the_memory_of_each_gpu(two_gpus: None) -> None:
    machine = describe()
    assert machine["gpus"] == ["GPU 0", "GPU 1"]
    assert machine["gpu_memory_mib"] == [81920, 24576]
    assert machine["driver"] == "575.1"


def test_gpus_without_a_known_memory_are_described(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", refuse)
    assert describe()["gpus"] == ["GPU 0", "GPU 1"]
    assert describe()["gpu_memory_mib"] == []


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert describe()["gpus"] == []
    assert "gpu_memory_mib" not in describe()


def test_hardware_is_equal_if_host_cpu_cores_and_gpus_are() -> None:
    machine = {"host": "a", "cpu": "EPYC", "cores": 8, "gpus": ["H200"], "memory_mib": 1024}
    assert hardware_key(machine) == hardware_key({**machine, "memory_mib": 2048})
    for change in ({"host": "b"}, {"cpu": "Xeon"}, {"cores": 4}, {"gpus": []}):
        assert hardware_key(machine) != hardware_key({**machine, **change})
