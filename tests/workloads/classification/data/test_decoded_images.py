from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dmls_ray.util.errors import DataError, InputError, UserCodeError
from dmls_ray.util.files import cache_root
from dmls_ray.workloads.classification.data import decoded_images as cache
from dmls_ray.workloads.classification.data.decoded_images import (
    decoded_splits,
    is_decoded,
    load_decoded,
    to_chw,
)
from dmls_ray.workloads.classification.data.sources import cached_source, read_sample
from dmls_ray.workloads.classification.datasets import Source
from tests.training.probes import Payload
from tests.workloads.classification.data.samples import write_folder


@pytest.fixture(autouse=True)
def forget() -> None:
    load_decoded.cache_clear()
    cached_source.cache_clear()


def test_images_are_decoded_once_and_mapped_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path)
    assert not is_decoded("image_folder", str(tmp_path), None)
    first = load_decoded("image_folder", str(tmp_path), None)
    assert is_decoded("image_folder", str(tmp_path), None)
    assert first.train_images.dtype == np.uint8
    assert first.shape == (3, 8, 8)
    pixels = np.asarray(Image.open(tmp_path / "train" / "dog" / "0001.jpg"))
    assert np.array_equal(first.train_images[4].transpose(1, 2, 0), pixels)
    load_decoded.cache_clear()

    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(cache, "_decode", refuse)
    again = load_decoded("image_folder", str(tmp_path), None)
    assert isinstance(again.train_images, np.memmap)
    assert np.array_equal(again.train_images, first.train_images)


def test_a_process_cannot_change_what_others_map(tmp_path: Path) -> None:
    write_folder(tmp_path)
    mine = load_decoded("image_folder", str(tmp_path), None)
    kept = mine.train_images[0].copy()
    mine.train_images[0] ^= 255
    load_decoded.cache_clear()
    assert np.array_equal(load_decoded("image_folder", str(tmp_path), None).train_images[0], kept)


def test_images_of_several_sizes_need_image_size(tmp_path: Path) -> None:
    write_folder(tmp_path)
    Image.new("RGB", (5, 8)).save(tmp_path / "train" / "dog" / "0009.png")
    message = r"train image 6 is uint8 of 3x8x5 and the first one is uint8 of 3x8x8; set image_size"
    with pytest.raises(DataError, match=message):
        load_decoded("image_folder", str(tmp_path), None)
    assert load_decoded("image_folder", str(tmp_path), 16).shape == (3, 16, 16)


def cached_names() -> list[str]:
    """Names of what lies in the cache of decoded images, besides the locks."""
    return sorted(path.name for path in (cache_root() / "decoded").iterdir() if path.suffix != ".lock")


def test_a_full_disk_is_reported_in_one_line_before_anything_is_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    load_decoded("synthetic:train=9,test=8", None, None)
    before = cached_names()
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(DataError, match=r"No space left on device\); free space there, or name .* DMLS_RAY_CACHE"):
        load_decoded("synthetic:train=10,test=8", None, None)
    assert cached_names() == before


def test_a_damaged_image_is_refused_and_leaves_no_partial_cache(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "test" / "cat" / "0000.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"test/cat/0000\.jpg cannot be read"):
        load_decoded("image_folder", str(tmp_path), None)
    assert not is_decoded("image_folder", str(tmp_path), None)


def test_an_image_with_too_many_pixels_is_refused_and_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # an 8x8 image has 64
    Image.new("RGB", (40, 40)).save(tmp_path / "test" / "cat" / "0000.jpg")
    with pytest.raises(DataError, match=r"0000\.jpg cannot be read \(.* exceeds limit of 200 pixels"):
        load_decoded("image_folder", str(tmp_path), None)


def test_a_cache_that_holds_objects_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path / "cache"))
    write_folder(tmp_path)
    load_decoded("image_folder", str(tmp_path), None)
    (file,) = (tmp_path / "cache" / "decoded").glob("image_folder-*/train_labels.npy")
    marker = tmp_path / "it ran"
    np.save(file, np.array([Payload(marker)], dtype=object), allow_pickle=True)
    load_decoded.cache_clear()
    with pytest.raises(DataError, match="its decoded images in .* cannot be read .*; remove that folder"):
        load_decoded("image_folder", str(tmp_path), None)
    assert not marker.exists()


def test_each_data_dir_of_a_user_defined_data_set_has_its_decoded_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two_folders.py").write_text(
        "import numpy as np\n"
        "def data(split, data_dir):\n"
        "    labels = np.zeros(1000, int)\n"
        "    if data_dir == 'noisy' and split == 'train':\n"
        "        labels[1:9] = 1\n"
        "    samples = [(np.zeros((4, 4), np.uint8), label) for label in labels.tolist()]\n"
        "    return type('Data', (list,), {'classes': 2})(samples)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for folder in ("clean", "noisy"):  # with equal files
        (tmp_path / folder).mkdir()
    labels = {folder: load_decoded("two_folders:data", folder, None).train_labels for folder in ("clean", "noisy")}
    assert (int(labels["clean"].sum()), int(labels["noisy"].sum())) == (0, 8)


def test_an_edited_function_is_imported_again_and_its_images_are_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "levels_util.py").write_text("LEVEL = 1\n")
    (tmp_path / "levels.py").write_text(
        "import numpy as np\n"
        "from levels_util import LEVEL\n"
        "class Data(list):\n"
        "    classes, fingerprint = 1, 'the same'\n"
        "def data(split):\n"
        "    return Data([(np.full((4, 4), LEVEL, np.uint8), 0)])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load_decoded("levels:data", None, None).train_images.max() == 1
    (tmp_path / "levels_util.py").write_text("LEVEL = 20\n")
    load_decoded.cache_clear()
    cached_source.cache_clear()
    assert load_decoded("levels:data", None, None).train_images.max() == 20


def test_images_are_decoded_again_where_another_version_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    load_decoded("digits", None, None)
    assert cache.is_decoded("digits", None, None)
    monkeypatch.setattr(cache, "_READER", "torch")  # of another version, as a new one would be
    assert not cache.is_decoded("digits", None, None)


IMAGE = np.zeros((4, 4), dtype=np.uint8)


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (Image.new("L", (4, 6)), (1, 6, 4)),
        (Image.fromarray(np.zeros((6, 4), dtype=np.uint16)), (1, 6, 4)),
        (Image.new("RGBA", (4, 6)), (3, 6, 4)),
        (Image.new("P", (4, 6)), (3, 6, 4)),
        (np.zeros((6, 4), dtype=np.uint8), (1, 6, 4)),
        (np.zeros((6, 4, 2), dtype=np.uint8), (2, 6, 4)),
        (np.zeros((3, 12, 4), dtype=np.float32), (4, 3, 12)),
        (torch.zeros(2, 6, 4, dtype=torch.uint8), (2, 6, 4)),
        (torch.zeros(8, 2, 2), (8, 2, 2)),
    ],
)
def test_images_of_all_kinds_become_channels_height_width(image: object, shape: tuple[int, int, int]) -> None:
    assert to_chw(image, None).shape == shape
    assert to_chw(image, 5).shape == (shape[0], 5, 5)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.zeros((4, 4)), "float64 of 4x4x1 is no image"),
        (np.zeros((0, 4), dtype=np.uint8), "uint8 of 0x4x1 is no image"),
        (torch.zeros(4, 4), "float32 of 4x4 is no image"),
        (torch.full((1, 4, 4), torch.nan), "not finite"),
        (np.zeros((3, 12, 10), dtype=np.uint8), "uint8 of 3x12x10: channels come first in a tensor, and last"),
        (torch.zeros(12, 10, 3), "float32 of 12x10x3: channels come first in a tensor"),
        (Image.new("F", (4, 4)), "mode F have no defined range"),
        (None, "is no image"),
    ],
)
def test_a_value_that_is_not_an_image_is_refused(image: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        to_chw(image, None)


@pytest.mark.parametrize("label", [1.0, True, np.uint8(1), torch.tensor([1])])
def test_a_label_that_is_a_whole_number_is_taken(label: object) -> None:
    assert read_sample("mine:data", "train", [(IMAGE, label)], 0)[1] == 1  # type: ignore[list-item]


@pytest.mark.parametrize("label", [0.7, float("nan"), -1, "cat"])
def test_a_label_that_is_no_whole_number_is_refused_with_its_sample(label: object) -> None:
    with pytest.raises(UserCodeError, match=f"dataset=mine:data: test label 1 is {label!r}"):
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
