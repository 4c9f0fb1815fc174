"""Samples of processor and memory during a run."""

from __future__ import annotations

import time

import pytest
import torch

from dmls_ray.training import utilization
from dmls_ray.training.utilization import UtilizationSampler


def test_processor_and_memory_are_sampled_during_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilization, "PERIOD_S", 0.02)
    with UtilizationSampler(torch.device("cpu")) as sampler:
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            sum(range(1000))
    series = sampler.series
    assert set(series) == {"at_s", "cpu_percent", "memory_mib"}
    assert len({len(values) for values in series.values()}) == 1
    assert len(series["at_s"]) >= 5
    assert series["at_s"] == sorted(series["at_s"])
    assert max(series["cpu_percent"]) > 10  # other work may take the rest of the cores
    assert min(series["memory_mib"]) > 50


def test_a_long_run_is_sampled_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilization, "PERIOD_S", 0.001)
    monkeypatch.setattr(utilization, "MOST_POINTS", 8)
    with UtilizationSampler(torch.device("cpu")) as sampler:
        time.sleep(0.5)
    points = sampler.series["at_s"]
    assert 4 <= len(points) < 8
    assert points[-1] > 0.05, "the series spans the run"
