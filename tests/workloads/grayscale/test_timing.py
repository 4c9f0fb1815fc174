"""Passes and what is run beside them, timed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from dmls_ray.records.provenance import last_level_cache_mib
from dmls_ray.workloads.grayscale import timing
from dmls_ray.workloads.grayscale.images import Images, load_pictures

CPU = torch.device("cpu")


def test_passes_and_copies_are_timed_in_turn_after_some_that_do_not_count() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("pass")
        time.sleep(0.005)

    passes, besides = timing.time_passes(slow, CPU, 0.0, lambda: None, then=lambda: calls.append("beside"))
    assert len(passes) == len(besides) == timing.LEAST_PASSES
    assert calls == ["pass", "beside"] * (timing.LEAST_PASSES + 2)
    assert min(passes) >= 5
    assert max(besides) < min(passes)


def test_passes_go_on_for_as_long_as_was_asked() -> None:
    began = time.perf_counter()
    signs: list[int] = []
    passes, besides = timing.time_passes(lambda: time.sleep(0.001), CPU, 0.1, lambda: signs.append(1))
    assert time.perf_counter() - began >= 0.1
    assert len(passes) > timing.LEAST_PASSES
    assert besides == []
    assert len(signs) == len(passes) + 2, "each is a sign of progress"


def test_a_copy_moves_as_many_bytes_as_a_pass() -> None:
    images = Images(load_pictures(2, 8), planar=False, device=CPU)
    assert 2 * timing.copy_of(images)().numel() == images.bytes_moved == 512


@pytest.mark.gpu
def test_on_a_gpu_passes_are_timed_by_its_own_clock() -> None:
    device = torch.device("cuda")
    matrix = torch.randn(4096, 4096, device=device)
    passes, _ = timing.time_passes(lambda: matrix @ matrix, device, 0.2, lambda: None)
    # 137 Gflop in fp32: no GPU does it in a tenth of a millisecond, and the host issues it in less.
    assert min(passes) > 0.1
    images = Images(load_pictures(8, 128), planar=False, device=device)
    before = images.pixels.clone()
    to_device, from_device = timing.transfers_of(images, 0.05, lambda: None)
    assert min(to_device) > 0 < min(from_device)
    assert torch.equal(images.pixels, before)
    assert (timing.cache_mib(device) or 0) > 0


def test_the_cache_is_that_of_all_cores_which_a_run_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = last_level_cache_mib()
    assert known is None or 0.25 <= known <= 4096

    def has(cpu: int, index: int, level: int, size: str, shared: str) -> None:
        folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(f"{text}\n")

    # Two cores to each last-level cache.
    for cpu in range(6):
        first = cpu // 2 * 2
        has(cpu, 0, 1, "48K", str(cpu))
        has(cpu, 3, 3, "32768K", f"{first}-{first + 1}")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    assert last_level_cache_mib(tmp_path) == 32
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    assert last_level_cache_mib(tmp_path) == 64
    assert last_level_cache_mib(tmp_path / "nowhere") is None
