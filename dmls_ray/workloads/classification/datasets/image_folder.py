"""A folder of images: train/<class>/<image> and test/<class>/<image> under data_dir."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dmls_ray.util.errors import DataError
from dmls_ray.util.file_digest import digest_of_files
from dmls_ray.workloads.classification.datasets import DatasetSpec, Source

if TYPE_CHECKING:
    from PIL import Image


def _root(data_dir: str | None) -> Path:
    layout = "it holds train/<class>/<image> and test/<class>/<image>"
    if data_dir is None:
        raise DataError(f"dataset=image_folder needs data_dir; name the folder: {layout}.")
    root = Path(data_dir).expanduser()
    for split in ("train", "test"):
        if not (root / split).is_dir():
            raise DataError(f"data_dir={data_dir}: there is no folder {root / split}; {layout}.")
    return root


def read_image(path: str) -> Image.Image:
    """The image of a file, in RGB.

    Raises:
        UNREADABLE: it is none, or it is broken.
    """
    if not Path(path).is_file():
        raise OSError(f"{path}: no regular file")  # the reader of a pipe would wait for its writer
    from torchvision.datasets.folder import default_loader

    try:
        image: Image.Image = default_loader(path)
    except ValueError as error:  # raised by Pillow for some broken files, where it raises OSError for others
        raise OSError(f"{path}: {error}") from error
    return image


def _open(name: str, data_dir: str | None) -> Source:
    from torchvision.datasets import ImageFolder

    root = _root(data_dir)
    try:
        train, test = (ImageFolder(str(root / split), loader=read_image) for split in ("train", "test"))
    except FileNotFoundError as error:
        raise DataError(f"data_dir={root}: {' '.join(str(error).split())}") from error
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise DataError(f"data_dir={root}: train and test do not hold the same classes; in one only: {', '.join(odd)}.")
    return Source(len(train.classes), lambda: _fingerprint(name, data_dir), lambda: (train, test))


def _fingerprint(name: str, data_dir: str | None) -> str:
    """A digest of all files. An image's folder is its label, so the paths have the labels."""
    root = Path(data_dir or "").expanduser()
    halves = [root / split for split in ("train", "test")]
    is_here = data_dir is not None and all(half.is_dir() for half in halves)
    return " ".join([name, *map(digest_of_files, halves)]) if is_here else ""


DATASET = DatasetSpec(
    open=_open,
    train_samples=lambda name: None,
    check=lambda name, data_dir: _root(data_dir),
    fingerprint=_fingerprint,
)
