from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dmls_ray.util.errors import DataError
from dmls_ray.util.files import cache_root
from dmls_ray.workloads.classification.data import decoded_images as cache
from dmls_ray.workloads.classification.data.decoded_images import is_decoded, load_decoded, peek_dataset
from dmls_ray.workloads.classification.data.sources import cached_source
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


def test_damaged_decoded_images_are_refused() -> None:
    arguments = ("synthetic:classes=3,train=10,test=8", None, None)
    load_decoded(*arguments)
    (folder,) = (cache_root() / "decoded").glob("synthetic-classes-3-train-10-test-8-*/")
    sound = (folder / "test_images.npy").read_bytes()
    (folder / "test_images.npy").unlink()
    (folder / "test_images.npy").write_bytes(sound[:20])
    load_decoded.cache_clear()
    with pytest.raises(DataError, match="cannot be read .*; remove that folder"):
        load_decoded(*arguments)
    (folder / "test_images.npy").write_bytes(sound)


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
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(DataError, match=r"0000\.jpg cannot be read"):
        peek_dataset("image_folder", str(tmp_path), None)


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
