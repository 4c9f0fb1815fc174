"""The built-in data sets, the entries of `DATASETS`. A new entry is a new data set.

digits          1,797 images of 8x8 pixels, a file of this package
mnist, ...      downloaded and unpacked by torchvision
synthetic       `synthetic:shape=3x32x32,classes=10,train=2048,test=512,seed=0`: a pattern per class, and noise
image_folder    images of the user: train/<class>/<image> and test/<class>/<image> under data_dir

The libraries that open a data set are loaded when it is opened.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from filelock import FileLock

from dmls_ray.util.digests import digest_of_files, files_below
from dmls_ray.util.errors import ConfigError, DataError
from dmls_ray.util.files import cache_root
from dmls_ray.util.importing import missing_extra
from dmls_ray.util.text import first_line
from dmls_ray.workloads.image_files import SUFFIXES, ImageFolder

if TYPE_CHECKING:
    from torch import Tensor

Split = Literal["train", "test"]


class Samples(Protocol):
    """A map-style data set, as torch.utils.data has it. It yields (image, label) per index.

    An image is a PIL image, an array of height x width (x channels, 4 at most), or a tensor of channels x height x
    width. Arrays and tensors are uint8 or already normalised float32. A label is a whole number from 0 on.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> tuple[Any, int]: ...


class Source:
    """Training and test samples of a data set, opened on first use, and a fingerprint of their content.

    If the cache has the decoded images, only the fingerprint is needed; the loader `dataloader` needs none.
    """

    def __init__(
        self,
        classes: int | Callable[[], int],
        fingerprint: str | Callable[[], str],
        open_halves: Callable[[], tuple[Samples, Samples]],
        note: str = "",
    ) -> None:
        self.note = note
        """A line for the user; empty for most data sets."""
        self._classes, self._fingerprint, self._open_halves = classes, fingerprint, open_halves

    @functools.cached_property
    def fingerprint(self) -> str:
        """What identifies the content, wherever it lies.

        Raises:
            DataError, UserCodeError: the content cannot be read.
        """
        try:
            return self._fingerprint() if callable(self._fingerprint) else self._fingerprint
        except OSError as error:
            raise DataError(f"a file of the data set cannot be read: {error}.") from error

    @functools.cached_property
    def classes(self) -> int:
        """Number of classes; computed from all labels if a user-defined data set does not define it."""
        return self._classes() if callable(self._classes) else self._classes

    @functools.cached_property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; the labels themselves where the data set names none."""
        names: Any = getattr(self.halves[0], "classes", None)
        if not hasattr(names, "__len__") or len(names) != self.classes:
            names = range(self.classes)
        return list(map(str, names))

    @functools.cached_property
    def halves(self) -> tuple[Samples, Samples]:
        """The training and the test samples.

        Raises:
            DataError: they are missing and cannot be downloaded, or cannot be read.
        """
        return self._open_halves()


@dataclass(frozen=True)
class DatasetSpec:
    """A built-in data set."""

    open: Callable[[str, str | None], Source]
    """Takes name and data_dir; downloads the files if they are missing."""
    check: Callable[[str, str | None], object] = lambda name, data_dir: None
    """Refuses wrong options or folders, without decoding or downloading."""
    has_options: bool = False
    """Whether the name may be followed by a colon and options."""
    has_user_files: bool = False
    """Whether its files are the user's. Else the name fixes the content, as of a data set that is downloaded and whose
    checksum torchvision compares."""


def builtin_dataset(name: str) -> DatasetSpec | None:
    """The built-in data set of a name with or without options; None if there is none."""
    kind, colon, _ = name.partition(":")
    spec = DATASETS.get(kind)
    if spec is None or (colon and not spec.has_options):
        return None
    return spec


_DIGITS = Path(__file__).parent / "data" / "digits.npz"
"""`images`: 1,797 x 8 x 8, uint8 from 0 to 16; `labels`: 1,797. digits.md beside it says whose they are."""


def _open_digits() -> tuple[Samples, Samples]:
    """The values 0 to 16 are stretched to 0 to 255; every fifth sample is a test sample.

    The file is sorted by writer, so a single cut would test on writers that were not trained on.
    """
    import numpy as np

    with np.load(_DIGITS, allow_pickle=False) as file:
        images = np.rint(file["images"] * (255 / 16)).astype(np.uint8)
        samples = list(zip(images, file["labels"].tolist(), strict=True))
    test = samples[4::5]
    del samples[4::5]
    return samples, test


# --- synthetic ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SyntheticSpec:
    """The options of a synthetic data set; every one may be left out."""

    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    train: int = 2048
    test: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(*self.shape, self.classes, self.train, self.test) < 1 or self.seed < 0:
            raise ValueError("an option is out of range")

    @classmethod
    def parse(cls, name: str) -> SyntheticSpec:
        """The options behind the colon.

        Raises:
            ConfigError: an option is unknown or no whole number of at least 1 (seed: 0).
        """
        options: dict[str, Any] = {}
        try:
            for part in name.partition(":")[2].split(","):
                key, _, text = part.partition("=")
                if key == "shape":
                    options[key] = tuple(map(int, text.split("x")))
                elif part:
                    options[key] = int(text)
            return cls(**options)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"dataset={name}: {error}; write synthetic:shape=3x32x32,classes=10,train=2048,test=512,seed=0, or "
                "some of these options."
            ) from error


class _Synthetic:
    """One pattern per class plus noise. Each sample is generated on access from a seed of its index."""

    def __init__(self, spec: SyntheticSpec, split: Split) -> None:
        import numpy as np

        self._spec = spec
        self._length = spec.train if split == "train" else spec.test
        self._half = ("train", "test").index(split)
        channels, height, width = spec.shape
        patterns = np.random.default_rng([spec.seed, 2])
        self._patterns = patterns.integers(64, 192, (spec.classes, height, width, channels))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import numpy as np
        import torch

        if not 0 <= index < self._length:
            raise IndexError(index)
        random = np.random.default_rng([self._spec.seed, self._half, index])
        label = int(random.integers(self._spec.classes))
        noise = random.integers(-64, 64, self._patterns.shape[1:])
        image = (self._patterns[label] + noise).astype(np.uint8)
        return torch.from_numpy(image).permute(2, 0, 1), label


def _open_synthetic(name: str, data_dir: str | None) -> Source:
    spec = SyntheticSpec.parse(name)
    return Source(spec.classes, repr(spec), lambda: (_Synthetic(spec, "train"), _Synthetic(spec, "test")))


# --- torchvision ----------------------------------------------------------------------------------------------------


def _torchvision(
    class_name: str,
    folder: str,
    *,
    select: Callable[[Split], dict[str, Any]] = lambda split: {"train": split == "train"},
    unread: Sequence[str] = (),
) -> DatasetSpec:
    """A data set of torchvision with 10 classes.

    Args:
        class_name: its class in torchvision.datasets.
        folder: where its unpacked files are, in the data folder.
        select: arguments of the class that select a split.
        unread: unpacked files that neither split reads.
    """

    def open_halves(name: str, root: Path) -> tuple[Samples, Samples]:
        from torchvision import datasets

        make = getattr(datasets, class_name)
        # One rank of a machine downloads; the others wait and then find the files. The lock is not in the data
        # folder, which may be on a read-only disk.
        locks = cache_root() / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = locks / f"{name}-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.lock"
        with FileLock(lock):
            try:
                return make(root, **select("train"), download=True), make(root, **select("test"), download=True)
            except (OSError, RuntimeError) as error:
                archives = [f"{folder}/{file}" for file, _ in getattr(make, "resources", ())] or [make.filename]
                raise DataError(
                    f"dataset={name} is not in {root} and cannot be downloaded ({first_line(error)}); put "
                    f"{', '.join(archives)} there, or name another folder with data_dir."
                ) from error

    def check(name: str, data_dir: str | None) -> None:
        if reason := missing_extra("torchvision", "vision", f"dataset={name}"):
            raise DataError(reason)

    def open_source(name: str, data_dir: str | None) -> Source:
        root = Path(data_dir).expanduser() if data_dir else cache_root() / "downloads"
        # Unpacked files identify the data set, so missing files are downloaded first.
        halves = None if (root / folder).is_dir() else open_halves(name, root)
        return Source(10, lambda: fingerprint(name, root), lambda: halves or open_halves(name, root))

    def fingerprint(name: str, root: Path) -> str:
        unpacked = root / folder
        files = [file for file in files_below(str(unpacked)) if not file.endswith((".gz", *unread))]
        return f"torchvision {name} {digest_of_files(unpacked, files)}"

    return DatasetSpec(open=open_source, check=check)


# --- a folder of images ---------------------------------------------------------------------------------------------

_LAYOUT = "it holds train/<class>/<image> and test/<class>/<image>"


def _check_image_folder(name: str, data_dir: str | None) -> Path:
    if data_dir is None:
        raise DataError(f"dataset=image_folder needs data_dir; name the folder: {_LAYOUT}.")
    if reason := missing_extra("PIL", "vision", f"dataset={name}"):
        raise DataError(reason)
    root = Path(data_dir).expanduser()
    for split in ("train", "test"):
        if not (root / split).is_dir():
            raise DataError(f"data_dir={data_dir}: there is no folder {root / split}; {_LAYOUT}.")
    return root


def _open_image_folder(name: str, data_dir: str | None) -> Source:
    root = _check_image_folder(name, data_dir)
    train, test = ImageFolder(root / "train"), ImageFolder(root / "test")
    if train.classes != test.classes:
        differing = sorted(set(train.classes) ^ set(test.classes))
        raise DataError(f"data_dir={root}: train and test do not hold the same classes: {', '.join(differing)}.")
    if len(train.classes) < 2:
        raise DataError(f"data_dir={root}: a classifier needs two classes or more, and there are {train.classes}.")

    def fingerprint() -> str:
        # An image's folder is its label, so the paths have the labels. Other files change nothing.
        halves = {"train": train, "test": test}
        digests = [digest_of_files(root / split, [path for path, _ in half.samples]) for split, half in halves.items()]
        return " ".join([name, *digests])

    used = {path for path, _ in (*train.samples, *test.samples)}
    left_out = {*files_below(str(root / "train")), *files_below(str(root / "test"))} - used
    note = ""
    if left_out:
        note = (
            f"dataset={name} leaves out {len(left_out)} of the files, {min(left_out)} first: an image is in the folder "
            f"of a class, and its name ends in {', '.join(SUFFIXES)}."
        )
    return Source(len(train.classes), fingerprint, lambda: (train, test), note)


DATASETS = {
    "cifar10": _torchvision("CIFAR10", "cifar-10-batches-py"),
    "digits": DatasetSpec(open=lambda name, data_dir: Source(10, "digits 1", _open_digits)),
    "fashion_mnist": _torchvision("FashionMNIST", "FashionMNIST/raw"),
    "image_folder": DatasetSpec(open=_open_image_folder, check=_check_image_folder, has_user_files=True),
    "mnist": _torchvision("MNIST", "MNIST/raw"),
    "stl10": _torchvision("STL10", "stl10_binary", select=lambda split: {"split": split}, unread=["unlabeled_X.bin"]),
    "synthetic": DatasetSpec(
        open=_open_synthetic, check=lambda name, data_dir: SyntheticSpec.parse(name), has_options=True
    ),
}
