from __future__ import annotations

import mmap
import platform
import resource
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from dmls_ray.training.memory import MIB, MemoryMeter
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import call_in_new_process, run_inline

CPU = torch.device("cpu")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak resident set can be reset on Linux only")


def fill(mib: int) -> torch.Tensor:
    return torch.ones(mib * MIB // 4)


def read(meter: MemoryMeter, name: str, data_bytes: int = 0) -> float:
    return meter.read(data_bytes)[name]


@linux
def test_the_peak_is_that_of_this_run_and_not_of_an_earlier_one() -> None:
    big = fill(64)
    with_it = MemoryMeter(CPU)
    del big
    fresh = MemoryMeter(CPU)
    assert fresh.start_mib < with_it.start_mib - 50
    assert read(fresh, "peak_mem_mib") < with_it.start_mib
    fill(128)
    assert read(fresh, "peak_mem_mib") > fresh.start_mib + 100


@linux
def test_the_memory_of_the_host_is_that_of_training_without_tests_within_and_after_an_epoch() -> None:
    meter = MemoryMeter(CPU)
    fill(200)
    for size in (64, 32):
        with meter.training():
            fill(size)
            with meter.outside_training():
                fill(200)
            fill(32)
        fill(200)
    assert 50 < read(meter, "host_mem_mib") < 100
    assert read(meter, "peak_mem_mib") > meter.start_mib + 150


@linux
@pytest.mark.parametrize("folder", [".", "/dev/shm"])  # a disk's file system, and one in memory
def test_the_memory_of_the_host_is_without_pages_of_files(folder: str, tmp_path: Path) -> None:
    with tempfile.TemporaryFile(dir=tmp_path / folder) as file:
        file.write(bytes(32 * MIB))
        file.flush()
        meter = MemoryMeter(CPU)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert not any(mapped[:: mmap.PAGESIZE])
            assert read(meter, "peak_mem_mib") > meter.start_mib + 25
            assert read(meter, "host_mem_mib") < 10


def test_a_rank_reports_the_data_set_on_its_device_apart() -> None:
    trial = TrialConfig(
        dataset="synthetic:shape=1x16x16,classes=4,train=2048,test=2048", batch_per_rank=512, epochs=1, device="cpu"
    )
    resident, loaded = (
        run_inline(trial.replace(loader=loader, loader_workers=0)) for loader in ("resident", "dataloader")
    )
    assert resident.values["data_mib"] == 4096 * (16 * 16 + 8) / MIB
    assert "data_mib" not in loaded.metrics
    assert "device_mem_mib" not in resident.metrics


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_memory_of_the_gpu_is_that_of_training_without_the_data_set() -> None:
    device = torch.device("cuda", 0)
    left_by_other_tests = torch.cuda.memory_allocated(device) / MIB
    meter = MemoryMeter(device)
    data = torch.ones(64 * MIB // 4, device=device)
    with meter.training():
        torch.ones(32 * MIB // 4, device=device)
    torch.ones(128 * MIB // 4, device=device)
    assert read(meter, "device_mem_mib", data.nbytes) == pytest.approx(left_by_other_tests + 32, abs=8)
    assert read(meter, "peak_mem_mib") >= 64 + 128
    assert meter.read()["host_mem_mib"] is None


def _sizes_at_the_start_of_runs() -> list[float]:
    """MiB of the resident set when a run begins, of five in one thread, as a worker of Ray has one."""
    torch.set_num_threads(1)

    def run() -> float:
        start_mib = MemoryMeter(CPU).start_mib
        model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2048, 256)).sum().backward()
            optimizer.step()
        return start_mib

    with ThreadPoolExecutor(1) as thread:
        return [thread.submit(run).result() for _ in range(5)]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_what_a_run_freed_in_a_thread_is_not_in_the_process_when_the_next_run_begins() -> None:
    """It was, by up to 36 MiB, which were missing in the memory of the next run."""
    _, *later = call_in_new_process(_sizes_at_the_start_of_runs)
    assert max(later) - min(later) < 8


def _faults_of_a_step() -> float:
    """Page faults of a step that allocates and frees 40 MB, in the main thread of a process."""
    MemoryMeter(CPU)

    def step() -> None:
        tensors = [torch.ones(500_000) for _ in range(20)]
        while tensors:
            tensors.pop()

    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_a_step_gets_the_pages_again_that_the_last_one_freed() -> None:
    """By default glibc returns them to the system at each step: 9,700 page faults."""
    assert call_in_new_process(_faults_of_a_step) < 500
