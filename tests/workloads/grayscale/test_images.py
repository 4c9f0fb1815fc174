"""The images that are turned grey, and the reference that holds for all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dmls_ray.workloads.grayscale.images import Images, load_pictures, reference

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


def test_a_picture_with_broken_metadata_is_taken_as_it_lies(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (250, 250, 250)).save(tmp_path / "a.png", exif=b"Exif\0\0MM\0\0nothing")
    (picture,) = load_pictures(1, 4, str(tmp_path))
    assert picture.min() == 250


def test_the_reference_is_the_weighted_sum_rounded_to_the_nearest_level() -> None:
    colours = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [1, 2, 3]], dtype=np.uint8)
    # 254.9745, 76.2195, 149.685, 29.07, 1.8149
    assert reference(colours.reshape(1, 2, 3, 3)).reshape(-1).tolist() == [0, 255, 76, 150, 29, 2]


def test_planes_hold_the_same_pixels() -> None:
    pictures = load_pictures(2, 5)
    interleaved = Images(pictures, planar=False, device=CPU)
    planar = Images(pictures, planar=True, device=CPU)
    assert planar.pixels.shape == (2, 3, 5, 5)
    for first, second in zip(interleaved.channels(), planar.channels(), strict=True):
        assert torch.equal(first, second)
    assert interleaved.bytes_moved == planar.bytes_moved == 2 * 5 * 5 * 4
