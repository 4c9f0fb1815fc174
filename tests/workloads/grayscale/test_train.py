"""One run of turning images grey, and what it tells."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dmls_ray.launchers.inline import run_inline
from dmls_ray.records.run_events import Progress, RankResult
from dmls_ray.workloads.grayscale import implementations, timing
from dmls_ray.workloads.grayscale.images import Images
from dmls_ray.workloads.grayscale.train import run_rank
from dmls_ray.workloads.grayscale.workload import GrayscaleWorkload


def result_of(**values: Any) -> tuple[RankResult, dict[str, Any], list[Any]]:
    """The rank's result, what the function returned, and the events."""
    config = GrayscaleWorkload().schema().make(**{"images": 8, "image_size": 16, "timed_s": 0.0, **values})
    events: list[Any] = []
    result = run_inline(config, train=run_rank, emit=events.append)
    return result, dict(result.run), events


def test_a_run_reports_the_time_of_a_pass_and_the_rates_that_follow() -> None:
    result, measured, events = result_of(implementation="numpy")
    assert result.outcome == "ok"
    assert measured["images_per_s"] == pytest.approx(8 / measured["pass_ms"] * 1e3)
    assert measured["gb_per_s"] == pytest.approx(8 * 16 * 16 * 4 / measured["pass_ms"] / 1e6)
    assert 0 < measured["pass_ms"] <= measured["pass_ms_p95"]
    assert measured["passes"] == timing.LEAST_PASSES
    assert measured["timed_images"] == 8
    assert measured["set_mib"] == pytest.approx(8 * 16 * 16 * 4 / 2**20)
    assert measured["levels_apart"] in (0, 1)
    assert measured["own_output"] == 0
    assert events
    assert all(event == Progress() for event in events)


def passes_take(monkeypatch: pytest.MonkeyPatch, *milliseconds: float, copies: tuple[float, ...] = ()) -> None:
    monkeypatch.setattr(timing, "time_passes", lambda *_, **__: (list(milliseconds), list(copies)))


def test_the_loops_go_over_four_images_and_their_time_is_scaled_unless_they_are_to_go_over_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes_take(monkeypatch, 2.0, 3.0, 10.0)
    _, few, _ = result_of(implementation="python_loops")
    _, every, _ = result_of(implementation="python_loops", full=True)
    assert (few["timed_images"], every["timed_images"]) == (4, 8)
    assert (few["pass_ms"], every["pass_ms"]) == (6, 3), "the median, scaled to as many images"
    for measured in (few, every):
        assert measured["set_mib"] == pytest.approx(8 * 16 * 16 * 4 / 2**20)
        assert measured["images_per_s"] == pytest.approx(8 / measured["pass_ms"] * 1e3)
        assert measured["gb_per_s"] == pytest.approx(8 * 16 * 16 * 4 / measured["pass_ms"] / 1e6)


def test_the_bandwidth_is_spoken_of_for_sets_far_larger_than_the_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 8 * 16 * 16 * 4 / 2**20
    monkeypatch.setattr(timing, "cache_mib", lambda device: size / 4)
    _, large, _ = result_of(implementation="numpy")
    assert large["copy_gb_per_s"] > 0
    assert 0 < large["of_copy"] < 2
    # In each pass its output is allocated anew, which is no matter of bandwidth.
    _, anew, _ = result_of(implementation="torchvision")
    assert anew["own_output"] == 1
    assert "of_copy" not in anew
    monkeypatch.setattr(timing, "cache_mib", lambda device: size / 3.9)
    assert "of_copy" not in result_of(implementation="numpy")[1]
    monkeypatch.setattr(timing, "cache_mib", lambda device: None)
    assert "of_copy" not in result_of(implementation="numpy")[1]


def test_a_pass_is_compared_with_the_copy_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "cache_mib", lambda device: 8 * 16 * 16 * 4 / 2**20 / 4)
    passes_take(monkeypatch, 2.0, 4.0, 10.0, copies=(1.0, 3.0, 4.0))
    measured = result_of(implementation="numpy")[1]
    assert measured["of_copy"] == 0.5
    assert measured["copy_gb_per_s"] == pytest.approx(8 * 16 * 16 * 4 / 3.0 / 1e6)


def test_the_picture_shows_four_images_in_colour_and_grey_below() -> None:
    measured = result_of(implementation="numpy", image_size=64)[1]
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(measured["picture"]))), dtype=int)
    assert sheet.shape == (128, 256, 3)

    def colourful(part: Any) -> float:
        return float(np.mean(np.ptp(part, axis=2)))

    assert colourful(sheet[:64]) > 20
    assert colourful(sheet[64:]) < 4
    assert len(measured["picture"]) < 32_768


@pytest.mark.parametrize(("off", "outcome"), [(1, "ok"), (2, "error")])
def test_a_grey_level_may_be_one_apart_and_no_more(off: int, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = implementations.IMPLEMENTATIONS["numpy"]

    def brighter(images: Images) -> Any:
        right_pass = right(images)

        def run() -> None:
            right_pass()
            first = images.grey.view(-1)[:1]
            first.copy_(first + off if first.item() < 128 else first - off)

        return run

    monkeypatch.setitem(implementations.IMPLEMENTATIONS, "numpy", brighter)
    assert result_of(implementation="numpy")[0].outcome == outcome


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["torch_cuda", "torch_compile_cuda", "triton", "cuda_per_image", "cuda"])
def test_a_run_on_a_gpu_reports_both_transfers(name: str) -> None:
    from dmls_ray.training.rank import RankInfo
    from dmls_ray.workloads.grayscale.config import GrayscaleConfig
    from dmls_ray.workloads.grayscale.train import turn_grey

    torch._dynamo.reset()
    measured = turn_grey(GrayscaleConfig(implementation=name), RankInfo(device="cuda:0"), lambda event: None)  # type: ignore[arg-type]
    assert measured["levels_apart"] <= 1
    assert measured["to_device_ms"] > 0 < measured["from_device_ms"]
    assert measured["pass_ms"] > 0
