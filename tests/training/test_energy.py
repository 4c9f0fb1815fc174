from __future__ import annotations

from collections.abc import Callable

import pynvml
import pytest
import torch

from dmls_ray.training import energy, utilization
from dmls_ray.training.clocks import StepTimer
from dmls_ray.training.energy import PowerMeter
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.utilization import UtilizationSampler


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which tests move."""
    now = [100.0]
    monkeypatch.setattr(energy.time, "perf_counter", lambda: now[0])
    return now


def counters(*readings: list[float]) -> Callable[[], list[float]]:
    return iter(readings).__next__


def test_the_mean_power_is_of_all_times_between_begin_and_end(clock: list[float]) -> None:
    meter = PowerMeter(counters([1.0, 0.0], [21.0, 5.0], [90.0, 90.0], [90.0, 95.0]), share=0.5)
    for seconds in (2.0, 1.0):
        meter.begin()
        clock[0] += seconds
        meter.end()
        clock[0] += 60
    assert meter.read() == {"power_w": (25 + 5) / 2 / 3}


def test_a_counter_that_began_again_is_left_out(clock: list[float]) -> None:
    meter = PowerMeter(counters([262_000.0], [10.0], [10.0], [50.0], [50.0], [60.0]))
    for seconds in (1.0, 2.0, energy._MOST_S):
        meter.begin()
        clock[0] += seconds
        meter.end()
    assert meter.read() == {"power_w": 20.0}


def test_a_counter_that_does_not_answer_for_a_while_is_left_out(clock: list[float]) -> None:
    meter = PowerMeter(counters([10.0], [50.0], [50.0], [], [], [900.0], [900.0], [960.0]))
    for seconds in (2.0, 1.0, 1.0, 3.0):
        meter.begin()
        clock[0] += seconds
        meter.end()
    assert meter.read() == {"power_w": 20.0}


def test_without_a_meter_there_is_no_power() -> None:
    timer = StepTimer(torch.device("cpu"), warmup_steps=0)
    timer.begin_epoch()
    timer.step()
    timer.end_epoch()
    assert timer.power.read() == {"power_w": None}


def test_only_counted_steps_have_power(clock: list[float]) -> None:
    joules = [0.0]
    timer = StepTimer(torch.device("cpu"), warmup_steps=1, power=PowerMeter(lambda: [joules[0]]))

    def step(watts: float) -> None:
        clock[0] += 1
        joules[0] += watts
        timer.step()

    timer.begin_epoch()
    with timer.paused():
        clock[0] += 1
        joules[0] += 900
    step(500)
    step(100)
    with timer.paused():
        clock[0] += 1
        joules[0] += 900
    step(200)
    timer.end_epoch()
    assert timer.power.read() == {"power_w": 150.0}


def test_a_rank_on_the_cpu_has_its_share_of_the_processors(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(energy, "package_energy_j", counters([0.0], [30.0]))
    meter = PowerMeter.of(RankInfo(world_size=3, machine="a", machines=("a", "a", "b")))
    meter.begin()
    clock[0] += 1
    meter.end()
    assert meter.read() == {"power_w": 15.0}


def test_a_rank_on_a_gpu_has_that_of_the_gpu(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    readings = iter([0, 5_000, 705_000])
    monkeypatch.setattr(energy, "nvml_handle", lambda device: "a GPU")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda gpu: next(readings))
    meter = PowerMeter.of(RankInfo(device="cuda:0", world_size=2))
    meter.begin()
    clock[0] += 1
    meter.end()
    assert meter.read() == {"power_w": 700.0}


def test_the_clocks_of_a_gpu_and_what_holds_them_down_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy:
        gpu, used = 97, 2**30

    reasons = iter([0x04, 0x04 | 0x40, 0x01, 0x00])
    monkeypatch.setattr(utilization, "nvml_handle", lambda device: "a GPU")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda gpu: Busy)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda gpu: Busy)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda gpu, clock: 1500)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda gpu: next(reasons))
    sampler = UtilizationSampler(torch.device("cuda", 0))
    sampler._began = 0.0
    for _ in range(4):
        sampler._sample()
    values = sampler.read()
    assert sampler.series["held_by_power"] == [1, 1, 0, 0]
    assert sampler.series["gpu_percent"] == [97] * 4
    held = {"held_by_power": 0.5, "held_by_heat": 0.25, "held_by_hardware": 0}
    assert {name: values[name] for name in ("gpu_mhz", *held)} == {"gpu_mhz": 1500, **held}
