"""Samples of a data set: an image becomes channels x height x width, a label a whole number, or the sample is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dmls_ray.util.errors import InputError, UserCodeError
from dmls_ray.workloads.classification.data.decoded_images import decoded_splits
from dmls_ray.workloads.classification.data.samples import read_sample, to_chw
from dmls_ray.workloads.classification.datasets import Source

IMAGE = np.zeros((4, 4), dtype=np.uint8)


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (Image.new("L", (4, 6)), (1, 6, 4)),
        (Image.new("1", (4, 6)), (1, 6, 4)),
        (Image.fromarray(np.zeros((6, 4), dtype=np.uint16)), (1, 6, 4)),
        (Image.new("RGBA", (4, 6)), (3, 6, 4)),
        (Image.new("P", (4, 6)), (3, 6, 4)),
        (np.zeros((6, 4), dtype=np.uint8), (1, 6, 4)),
        (np.zeros((6, 4, 2), dtype=np.uint8), (2, 6, 4)),
        (np.zeros((3, 12, 4), dtype=np.float32), (4, 3, 12)),
        (torch.zeros(2, 6, 4), (2, 6, 4)),
        (torch.zeros(2, 6, 4, dtype=torch.uint8), (2, 6, 4)),
        (torch.zeros(10, 6, 5), (10, 6, 5)),
        (torch.zeros(8, 2, 2), (8, 2, 2)),
    ],
)
def test_images_of_all_kinds_become_channels_height_width(image: object, shape: tuple[int, int, int]) -> None:
    assert to_chw(image, None).shape == shape
    assert to_chw(image, 5).shape == (shape[0], 5, 5)


def test_an_image_of_16_bits_is_scaled_and_not_clipped() -> None:
    levels = np.array([[0, 1000], [30000, 65535]], dtype=np.uint16)
    assert to_chw(Image.fromarray(levels), None)[0].tolist() == [[0, 4], [117, 255]]


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.zeros((4, 4)), "float64 of 4x4x1 is no image"),
        (np.zeros((4, 4), dtype=np.uint16), "uint16 of 4x4x1 is no image"),
        (np.zeros((0, 4), dtype=np.uint8), "uint8 of 0x4x1 is no image"),
        (torch.zeros(4, 4), "float32 of 4x4 is no image"),
        (torch.full((1, 4, 4), torch.nan), "not finite"),
        (np.full((4, 4), np.inf, dtype=np.float32), "not finite"),
        (np.zeros((3, 12, 10), dtype=np.uint8), "uint8 of 3x12x10: channels come first in a tensor, and last"),
        (torch.zeros(12, 10, 3), "float32 of 12x10x3: channels come first in a tensor"),
        (Image.new("F", (4, 4)), "mode F have no defined range"),
        (None, "is no image"),
    ],
)
def test_a_value_that_is_not_an_image_is_refused(image: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        to_chw(image, None)


@pytest.mark.parametrize(
    "label",
    [
        1,
        1.0,
        True,
        np.True_,
        np.int64(1),
        np.uint8(1),
        np.float32(1),
        torch.tensor(1),
        torch.tensor([1]),
        np.ones((1, 1)),
    ],
)
def test_a_label_that_is_a_whole_number_is_taken(label: object) -> None:
    assert read_sample("mine:data", "train", [(IMAGE, label)], 0)[1] == 1  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        (0.7, "is 0.7"),
        (float("nan"), "is nan"),
        (float("inf"), "is inf"),
        (-1, "is -1"),
        ("cat", "is 'cat'"),
        (None, "is None"),
    ],
)
def test_a_label_that_is_no_whole_number_is_refused_with_its_sample(label: object, reason: str) -> None:
    with pytest.raises(UserCodeError, match=f"dataset=mine:data: test label 1 {reason}"):
        read_sample("mine:data", "test", [(IMAGE, 0), (IMAGE, label)], 1)  # type: ignore[list-item]


@pytest.mark.parametrize("sample", [{"image": IMAGE, "label": 1}, (IMAGE, 1, "a name"), (IMAGE, [1, 2]), None])
def test_a_data_set_that_gives_no_image_and_label_is_refused_with_the_sample(sample: Any) -> None:
    with pytest.raises(UserCodeError, match="dataset=mine:data: train (sample|label) 0 is"):
        read_sample("mine:data", "train", [sample], 0)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ((IMAGE, 3), "dataset=mine:data: train label 1 is 3; labels go from 0 to 2"),
        ((IMAGE[:3], 0), "dataset=mine:data: train image 1 is uint8 of 1x3x4 and the first one is uint8 of 1x4x4"),
        ((IMAGE.astype(np.float32), 0), "train image 1 is float32 of 1x4x4 and the first one is uint8"),
        ((np.zeros((3, 8, 8), np.uint8), 0), "train image 1 .*uint8 of 3x8x8"),
    ],
)
def test_a_sample_that_does_not_fit_the_others_is_refused(second: object, reason: str) -> None:
    samples: Any = [(IMAGE, 0), second]
    train, _ = decoded_splits("mine:data", Source(3, "", lambda: (samples, samples)), None)
    assert train.shape == (1, 4, 4)
    assert train[0][1] == 0
    with pytest.raises(InputError, match=reason):
        train[1]


def test_images_get_the_colours_of_the_first() -> None:
    samples: Any = [(Image.new("L", (8, 8), 7), 0), (Image.new("RGB", (8, 8), (9, 9, 9)), 0)]
    train, _ = decoded_splits("mine:data", Source(1, "", lambda: (samples, samples)), None)
    assert train.shape == train[1][0].shape == (1, 8, 8)
    assert train[1][0].max() == 9
