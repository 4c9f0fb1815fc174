"""One run of turning images grey, and what it tells."""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dmls_ray.grayscale import implementations, timing
from dmls_ray.grayscale.images import Images
from dmls_ray.launch.inline import run_inline
from dmls_ray.own import own_schema
from dmls_ray.training.own import run_own

TRAIN = "dmls_ray.grayscale.trial:turn_grey"


def result_of(**values: Any) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """The rank's result, what the function returned, and the events."""
    config = own_schema(TRAIN).make(**{"images": 8, "image_size": 16, "timed_s": 0.0, **values})
    events: list[Any] = []
    result = run_inline(config, train=run_own, emit=events.append)
    return result, result.get("run", {}).get("returned", {}), events


def test_a_run_tells_how_long_a_pass_took_and_what_that_means() -> None:
    result, told, events = result_of(implementation="numpy")
    assert result["outcome"] == "ok"
    assert told["images_per_s"] == pytest.approx(8 / told["pass_ms"] * 1e3)
    assert told["gb_per_s"] == pytest.approx(8 * 16 * 16 * 4 / told["pass_ms"] / 1e6)
    assert 0 < told["pass_ms"] <= told["pass_ms_p95"]
    assert told["passes"] == timing.LEAST_PASSES
    assert told["timed_images"] == 8
    assert told["set_mib"] == pytest.approx(8 * 16 * 16 * 4 / 2**20)
    assert told["levels_apart"] in (0, 1)
    assert told["own_output"] is False
    assert events
    assert all(event["kind"] == "progress" for event in events)


def test_the_loops_go_over_four_images_and_their_time_is_scaled_unless_they_are_to_go_over_all() -> None:
    _, few, _ = result_of(implementation="python_loops")
    _, every, _ = result_of(implementation="python_loops", full=True)
    assert (few["timed_images"], every["timed_images"]) == (4, 8)
    assert few["pass_ms"] / every["pass_ms"] == pytest.approx(1, abs=0.7), "scaled to as many images"
    assert few["set_mib"] == every["set_mib"]


def test_the_bandwidth_is_spoken_of_for_sets_far_larger_than_the_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 8 * 16 * 16 * 4 / 2**20
    monkeypatch.setattr(timing, "cache_mib", lambda device: size / 4)
    _, large, _ = result_of(implementation="numpy")
    assert large["copy_gb_per_s"] > 0
    assert 0 < large["of_copy"] < 2
    # In each pass its output is allocated anew, which is no matter of bandwidth.
    _, anew, _ = result_of(implementation="torchvision")
    assert anew["own_output"] is True
    assert "of_copy" not in anew
    monkeypatch.setattr(timing, "cache_mib", lambda device: size / 3.9)
    assert "of_copy" not in result_of(implementation="numpy")[1]
    monkeypatch.setattr(timing, "cache_mib", lambda device: None)
    assert "of_copy" not in result_of(implementation="numpy")[1]


def test_the_picture_shows_four_images_in_colour_and_grey_below() -> None:
    told = result_of(implementation="numpy", image_size=64)[1]
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(told["picture"]))), dtype=int)
    assert sheet.shape == (128, 256, 3)

    def colourful(part: Any) -> float:
        return float(np.mean(np.ptp(part, axis=2)))

    assert colourful(sheet[:64]) > 20
    assert colourful(sheet[64:]) < 4
    assert len(told["picture"]) < 32_768


def test_an_implementation_that_is_wrong_is_an_error_and_no_row_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_bright(images: Images) -> Any:
        def run() -> None:
            images.grey.fill_(255)

        return run

    monkeypatch.setitem(implementations.IMPLEMENTATIONS, "numpy", too_bright)
    result, _, _ = result_of(implementation="numpy")
    assert result["outcome"] == "error"
    assert "grey levels from the reference; 1 is right" in result["reason"]


def test_what_a_machine_lacks_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    result, _, _ = result_of(implementation="opencv")
    assert result["outcome"] == "skipped"
    assert "needs OpenCV" in result["reason"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["torch_cuda", "torch_compile_cuda", "triton", "cuda_per_image", "cuda"])
def test_a_run_on_a_gpu_tells_its_transfers_apart(name: str) -> None:
    from dmls_ray.grayscale.config import GrayscaleConfig
    from dmls_ray.grayscale.trial import turn_grey
    from dmls_ray.rank import RankInfo

    torch._dynamo.reset()
    told = turn_grey(GrayscaleConfig(implementation=name), RankInfo(device="cuda:0"), lambda event: None)  # type: ignore[arg-type]
    assert told["levels_apart"] <= 1
    assert told["to_device_ms"] > 0 < told["from_device_ms"]
    assert told["pass_ms"] > 0
