"""One run of turning images grey, and what it tells."""

from __future__ import annotations

import base64
import io
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dmls_ray.records.run_events import Progress, RankResult
from dmls_ray.workloads.grayscale import implementations, train
from dmls_ray.workloads.grayscale.images import Images
from dmls_ray.workloads.grayscale.train import convert_images, load_pictures, reference
from dmls_ray.workloads.grayscale.workload import GrayscaleWorkload
from tests.new_processes import run_inline

CPU = torch.device("cpu")


def result_of(**values: Any) -> tuple[RankResult, dict[str, Any], list[Any]]:
    """The rank's result, what the function returned, and the events."""
    config = GrayscaleWorkload().schema().make(**{"images": 8, "image_size": 16, "timed_s": 0.0, **values})
    events: list[Any] = []
    result = run_inline(config, train=convert_images, emit=events.append)
    return result, result.run.reported, events


def test_a_run_reports_the_time_of_a_pass_and_the_rates_that_follow() -> None:
    result, measured, events = result_of(implementation="numpy")
    assert result.outcome == "ok"
    assert measured["images_per_s"] == pytest.approx(8 / measured["pass_ms"] * 1e3)
    assert measured["gb_per_s"] == pytest.approx(8 * 16 * 16 * 4 / measured["pass_ms"] / 1e6)
    assert 0 < measured["pass_ms"] <= measured["pass_ms_p95"]
    assert measured["timed_images"] == 8
    assert measured["set_mib"] == pytest.approx(8 * 16 * 16 * 4 / 2**20)
    assert measured["levels_apart"] in (0, 1)
    assert events
    assert all(event == Progress() for event in events)


def test_the_loops_go_over_four_images_and_their_time_is_scaled_unless_they_are_to_go_over_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train, "time_passes", lambda *_, **__: [2.0, 3.0, 10.0])
    _, few, _ = result_of(implementation="python_loops")
    _, every, _ = result_of(implementation="python_loops", full=True)
    assert (few["timed_images"], every["timed_images"]) == (4, 8)
    assert (few["pass_ms"], every["pass_ms"]) == (6, 3), "the median, scaled to as many images"
    assert few["gb_per_s"] == pytest.approx(8 * 16 * 16 * 4 / few["pass_ms"] / 1e6)


def test_a_pass_that_reads_from_memory_is_compared_with_a_copy_of_as_many_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = itertools.cycle(([2.0, 4.0, 10.0], [1.0, 3.0, 4.0]))
    monkeypatch.setattr(train, "time_passes", lambda *_, **__: next(times))
    monkeypatch.setattr(train, "last_level_cache_bytes", lambda device: 8 * 16 * 16)
    measured = result_of(implementation="numpy")[1]
    assert measured["of_copy"] == pytest.approx(0.75)
    assert measured["copy_gb_per_s"] == pytest.approx(8 * 16 * 16 * 4 / 3.0 / 1e6)
    assert "of_copy" not in result_of(implementation="numpy", images=7)[1], "from the cache"
    assert "of_copy" not in result_of(implementation="torchvision")[1], "into memory of its own"


def test_the_size_of_the_last_level_cache_is_known_or_infinite() -> None:
    assert train.last_level_cache_bytes(CPU) >= 2**18


def test_the_picture_shows_four_images_in_colour_and_grey_below() -> None:
    measured = result_of(implementation="numpy", image_size=64)[1]
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(measured["picture"]))), dtype=int)
    assert sheet.shape == (128, 256, 3)
    colour = np.ptp(sheet, axis=2)
    assert colour[:64].mean() > 20
    assert colour[64:].mean() < 4
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
    from dmls_ray.workloads.grayscale.train import turn_grey
    from dmls_ray.workloads.grayscale.workload import GrayscaleConfig

    torch._dynamo.reset()
    measured = turn_grey(GrayscaleConfig(implementation=name), RankInfo(device="cuda:0"), lambda event: None)  # type: ignore[arg-type]
    assert measured["levels_apart"] <= 1
    assert measured["to_device_ms"] > 0 < measured["from_device_ms"]
    assert measured["pass_ms"] > 0


def test_passes_are_timed_after_some_that_do_not_count_for_as_long_as_was_asked() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("pass")
        time.sleep(0.005)

    passes = train.time_passes(slow, CPU, 0.0, lambda: None)
    assert len(passes) == train.LEAST_PASSES
    assert calls == ["pass"] * (train.LEAST_PASSES + 2)
    assert min(passes) >= 5

    began = time.perf_counter()
    signs: list[int] = []
    passes = train.time_passes(lambda: time.sleep(0.001), CPU, 0.1, lambda: signs.append(1))
    assert time.perf_counter() - began >= 0.1
    assert len(passes) > train.LEAST_PASSES
    assert len(signs) == len(passes) + 2, "each is a sign of progress"


def test_a_copy_moves_as_many_bytes_as_a_pass() -> None:
    images = Images(load_pictures(2, 8), planar=False, device=CPU)
    assert 2 * train.copy_of(images)().numel() == images.bytes_moved == 512


@pytest.mark.gpu
def test_on_a_gpu_passes_are_timed_by_its_own_clock() -> None:
    device = torch.device("cuda")
    matrix = torch.randn(4096, 4096, device=device)
    passes = train.time_passes(lambda: matrix @ matrix, device, 0.2, lambda: None)
    # 137 Gflop in fp32: no GPU does it in a tenth of a millisecond, and the host issues it in less.
    assert min(passes) > 0.1
    images = Images(load_pictures(8, 128), planar=False, device=device)
    before = images.pixels.clone()
    for transfer in train.transfers_of(images):
        assert min(train.time_passes(transfer, device, 0.05, lambda: None)) > 0
    assert torch.equal(images.pixels, before)


def test_pictures_are_cuts_of_photographs_and_the_same_at_every_call() -> None:
    pictures = load_pictures(6, 32)
    assert pictures.shape == (6, 32, 32, 3)
    assert pictures.dtype == np.uint8
    assert np.array_equal(pictures, load_pictures(6, 32))
    assert np.array_equal(pictures[:3], load_pictures(3, 32)), "more of them leave the first ones as they were"
    assert len({picture.tobytes() for picture in pictures}) == 6
    assert all(picture.std() > 5 for picture in pictures)


def test_a_picture_may_be_larger_than_the_photographs() -> None:
    assert load_pictures(1, 500).shape == (1, 500, 500, 3)


def test_a_folders_images_are_cut_to_squares_and_come_again_where_they_are_few(tmp_path: Path) -> None:
    Image.new("RGB", (8, 4), (200, 10, 30)).save(tmp_path / "a.png")
    Image.new("L", (5, 9), 77).save(tmp_path / "b.png")
    pictures = load_pictures(5, 3, str(tmp_path))
    assert [tuple(picture[1, 1]) for picture in pictures] == [
        (200, 10, 30), (77, 77, 77), (200, 10, 30), (77, 77, 77), (200, 10, 30),
    ]  # fmt: skip


def test_a_picture_with_broken_metadata_is_taken_as_it_lies(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (250, 250, 250)).save(tmp_path / "a.png", exif=b"Exif\0\0MM\0\0nothing")
    (picture,) = load_pictures(1, 4, str(tmp_path))
    assert picture.min() == 250


def test_the_reference_is_the_weighted_sum_rounded_to_the_nearest_level() -> None:
    colours = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [1, 2, 3]], dtype=np.uint8)
    # 254.9745, 76.2195, 149.685, 29.07, 1.8149
    assert reference(colours.reshape(1, 2, 3, 3)).reshape(-1).tolist() == [0, 255, 76, 150, 29, 2]
