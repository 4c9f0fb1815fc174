"""The images that are turned grey, and the reference that holds for all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dmls_ray.util.errors import DataError
from dmls_ray.workloads.grayscale.images import Images, levels_apart, load_pictures, reference

CPU = torch.device("cpu")


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


def test_a_photograph_that_was_taken_upright_is_upright(tmp_path: Path) -> None:
    lying = Image.new("RGB", (4, 4))
    lying.paste((250, 250, 250), (0, 0, 2, 4))
    turned = lying.getexif()
    turned[274] = 6  # Orientation: to be turned by a quarter, clockwise
    lying.save(tmp_path / "a.png", exif=turned)
    (picture,) = load_pictures(1, 4, str(tmp_path))
    assert picture[:2].min() == 250
    assert picture[2:].max() == 0


def test_a_picture_is_taken_as_it_lies_where_what_is_said_beside_it_is_broken(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (250, 250, 250)).save(tmp_path / "a.png", exif=b"Exif\0\0MM\0\0nothing")
    (picture,) = load_pictures(1, 4, str(tmp_path))
    assert picture.min() == 250


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a\.jpg cannot be read"):
        load_pictures(1, 8, str(tmp_path))


def test_the_reference_is_the_weighted_sum_rounded_to_the_nearest_level() -> None:
    colours = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [1, 2, 3]], dtype=np.uint8)
    # 254.9745, 76.2195, 149.685, 29.07, 1.8149
    assert reference(colours.reshape(1, 2, 3, 3)).reshape(-1).tolist() == [0, 255, 76, 150, 29, 2]


def test_the_reference_of_many_pictures_is_worked_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = load_pictures(2, 16)
    whole = reference(pictures)
    monkeypatch.setattr("dmls_ray.workloads.grayscale.images._AT_ONCE", 100)
    assert np.array_equal(reference(pictures), whole)


def test_levels_are_apart_in_either_direction() -> None:
    low, high = np.array([[[0, 200]]], dtype=np.uint8), np.array([[[3, 255]]], dtype=np.uint8)
    assert levels_apart(low, high) == levels_apart(high, low) == 55
    assert levels_apart(low, low) == 0


def test_planes_hold_the_same_pixels() -> None:
    pictures = load_pictures(2, 5)
    interleaved = Images.of(pictures, planar=False, device=CPU)
    planar = Images.of(pictures, planar=True, device=CPU)
    assert planar.pixels.shape == (2, 3, 5, 5)
    for one, other in zip(interleaved.channels(), planar.channels(), strict=True):
        assert torch.equal(one, other)
    assert interleaved.bytes_moved == planar.bytes_moved == 2 * 5 * 5 * 4


def test_the_first_images_share_their_memory_with_all() -> None:
    images = Images.of(load_pictures(3, 4), planar=False, device=CPU)
    images.first(1).grey.fill_(9)
    assert images.grey[:, 0, 0].tolist() == [9, 0, 0]


PIXELS, GREY = torch.zeros(2, 4, 6, 3, dtype=torch.uint8), torch.zeros(2, 4, 6, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("pixels", "grey", "planar", "reason"),
    [
        (PIXELS.float(), GREY, False, "pixels are float32; give uint8"),
        (PIXELS, GREY.int(), False, "grey are int32; give uint8"),
        (PIXELS[0], GREY, False, "pixels have 3 dimensions; give 4"),
        (PIXELS, GREY[0], False, "grey have 2 dimensions; give 3"),
        (PIXELS.transpose(1, 2), GREY, False, "pixels have the strides .* give a contiguous tensor"),
        (PIXELS[..., :2].contiguous(), GREY, False, "pixels have 2 channels in interleaved layout"),
        (PIXELS, GREY, True, "pixels have 4 channels in planar layout"),
        (PIXELS, torch.zeros(2, 6, 4, dtype=torch.uint8), False, r"grey has the shape \(2, 6, 4\), and the images"),
        (PIXELS, GREY.to("meta"), False, "grey is on meta and pixels on cpu"),
    ],
)
def test_what_no_implementation_takes_is_refused(
    pixels: torch.Tensor, grey: torch.Tensor, planar: bool, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        Images(pixels, grey, planar)
