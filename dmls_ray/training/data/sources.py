"""Data sets by name: where their samples come from, before anything is decoded.

A source yields (image, label) per index. An image is a PIL image, an array of height x width (x channels) uint8, or
a tensor of channels x height x width, uint8 or already normalised float32.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dmls_ray.util.errors import ConfigError, DataError, UnknownNameError, UserCodeError
from dmls_ray.util.importing import import_function, is_reference

Split = Literal["train", "test"]


class Samples(Protocol):
    """A map-style data set, as torch.utils.data has it."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> tuple[Any, int]: ...


class Source:
    """The two halves of a data set, opened when they are asked for, and a text that changes when their content does.

    Where the decoded images are in the cache already, the fingerprint is all that is needed.
    """

    def __init__(
        self,
        classes: int | Callable[[], int],
        fingerprint: str,
        open_halves: Callable[[], tuple[Samples, Samples]],
    ) -> None:
        self.fingerprint = fingerprint
        self._classes, self._open_halves = classes, open_halves

    @functools.cached_property
    def classes(self) -> int:
        """Number of classes; for a data set of the user's own that does not tell, all labels are read."""
        return self._classes() if callable(self._classes) else self._classes

    @functools.cached_property
    def halves(self) -> tuple[Samples, Samples]:
        """The training and the test samples.

        Raises:
            DataError: they are missing and cannot be downloaded, or cannot be read.
        """
        return self._open_halves()


DATASETS = ("digits", "cifar10", "mnist", "fashion_mnist", "stl10", "image_folder", "synthetic")


def cache_root() -> Path:
    """Where downloads and decoded images are kept: $DMLS_RAY_CACHE, or dmls_ray in the user's cache folder."""
    own = os.environ.get("DMLS_RAY_CACHE")
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(own).expanduser() if own else shared / "dmls_ray"


def check_source(name: str, data_dir: str | None) -> None:
    """Refuse, without decoding or downloading, what `find_source` would refuse.

    Raises:
        UnknownNameError: there is no such data set.
        ConfigError: the options of a synthetic data set are wrong.
        DataError: an image folder is not laid out as one.
        UserCodeError: the user's module failed to import.
    """
    kind = name.partition(":")[0]
    if kind == "synthetic":
        SyntheticSpec.parse(name)
    elif name == "image_folder":
        _image_folder_root(data_dir)
    elif name not in DATASETS:
        _own_function(name)


def find_source(name: str, data_dir: str | None) -> Source:
    """The data set of that name, downloaded if it can be and must be.

    Raises:
        as `check_source`, and DataError where files are missing and cannot be downloaded.
    """
    check_source(name, data_dir)
    if name == "digits":
        return Source(10, "digits 1", _open_digits)
    if name.partition(":")[0] == "synthetic":
        spec = SyntheticSpec.parse(name)
        return Source(spec.classes, repr(spec), lambda: (_Synthetic(spec, "train"), _Synthetic(spec, "test")))
    if name == "image_folder":
        return _image_folder(_image_folder_root(data_dir))
    if name in _TORCHVISION:
        root = Path(data_dir).expanduser() if data_dir else cache_root() / "downloads"
        return _torchvision(name, root)
    return _own(name, data_dir)


# --- digits -----------------------------------------------------------------------------------------------------


class _Arrays:
    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self._images, self._labels = images, labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        return self._images[index], int(self._labels[index])


def _open_digits() -> tuple[Samples, Samples]:
    """scikit-learn's 1,797 digits of 8x8, 0 to 16 stretched to 0 to 255; every fifth is a test sample.

    Writers follow each other in the file, so a cut at one place would test on other writers than were trained on.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    test = np.arange(len(labels)) % 5 == 4
    return _Arrays(images[~test], labels[~test]), _Arrays(images[test], labels[test])


# --- synthetic --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SyntheticSpec:
    """`synthetic:shape=3x32x32,classes=10,train=2048,test=512,seed=0`; every option may be left out."""

    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    train: int = 2048
    test: int = 512
    seed: int = 0

    @classmethod
    def parse(cls, name: str) -> SyntheticSpec:
        """The options behind the colon.

        Raises:
            ConfigError: an option is unknown or no whole number of at least 1 (seed: 0).
        """
        way_out = "write synthetic:shape=3x32x32,classes=10,train=2048,test=512,seed=0, or some of these options"
        options: dict[str, Any] = {}
        for part in filter(None, name.partition(":")[2].split(",")):
            key, _, text = part.partition("=")
            numbers = text.split("x") if key == "shape" else [text]
            known = key in cls.__dataclass_fields__ and len(numbers) == (3 if key == "shape" else 1)
            if not known or not all(item.isdecimal() for item in numbers):
                raise ConfigError(f"dataset={name}: {part!r} is not understood; {way_out}.")
            values = tuple(int(item) for item in numbers)
            if min(values) < (0 if key == "seed" else 1):
                raise ConfigError(f"dataset={name}: {part!r} is out of range; give 1 or more.")
            options[key] = values if key == "shape" else values[0]
        return cls(**options)


class _Synthetic:
    """A pattern a class, with noise over it: learnable, and every sample made from its own seed when it is asked
    for.
    """

    def __init__(self, spec: SyntheticSpec, split: Split) -> None:
        self._spec = spec
        self._length = spec.train if split == "train" else spec.test
        self._half = ("train", "test").index(split)
        channels, height, width = spec.shape
        patterns = np.random.default_rng([spec.seed, 2])
        self._patterns = patterns.integers(64, 192, (spec.classes, height, width, channels))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        if not 0 <= index < self._length:
            raise IndexError(index)
        random = np.random.default_rng([self._spec.seed, self._half, index])
        label = int(random.integers(self._spec.classes))
        noise = random.integers(-64, 64, self._patterns.shape[1:])
        return (self._patterns[label] + noise).astype(np.uint8), label


# --- image folder -----------------------------------------------------------------------------------------------


def _image_folder_root(data_dir: str | None) -> Path:
    layout = "it holds train/<class>/<image> and test/<class>/<image>"
    if data_dir is None:
        raise DataError(f"dataset=image_folder needs data_dir; name the folder: {layout}.")
    root = Path(data_dir).expanduser()
    for split in ("train", "test"):
        if not (root / split).is_dir():
            raise DataError(f"data_dir={data_dir}: there is no folder {root / split}; {layout}.")
    return root


def _image_folder(root: Path) -> Source:
    from torchvision.datasets import ImageFolder

    try:
        train, test = ImageFolder(str(root / "train")), ImageFolder(str(root / "test"))
    except FileNotFoundError as error:
        raise DataError(f"data_dir={root}: {' '.join(str(error).split())}") from error
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise DataError(f"data_dir={root}: train and test do not hold the same classes; in one only: {', '.join(odd)}.")
    digest = hashlib.sha256()
    for path, label in train.samples + test.samples:
        stat = os.stat(path)
        digest.update(f"{os.path.relpath(path, root)}\0{label}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return Source(len(train.classes), f"image_folder {digest.hexdigest()}", lambda: (train, test))


# --- torchvision ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TorchvisionSet:
    class_name: str
    splits: dict[Split, dict[str, Any]]
    folder: str
    """Where the files lie unpacked, in the data folder."""
    files: tuple[str, ...]
    """What torchvision unpacks; where these lie in the data folder, nothing is downloaded."""


_BY_FLAG: dict[Split, dict[str, Any]] = {"train": {"train": True}, "test": {"train": False}}
_MNIST_FILES = tuple(
    f"{half}-{kind}.gz" for half in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
)
_TORCHVISION = {
    "cifar10": _TorchvisionSet("CIFAR10", _BY_FLAG, "cifar-10-batches-py", ("cifar-10-python.tar.gz",)),
    "mnist": _TorchvisionSet("MNIST", _BY_FLAG, "MNIST/raw", tuple(f"MNIST/raw/{name}" for name in _MNIST_FILES)),
    "fashion_mnist": _TorchvisionSet(
        "FashionMNIST", _BY_FLAG, "FashionMNIST/raw", tuple(f"FashionMNIST/raw/{name}" for name in _MNIST_FILES)
    ),
    "stl10": _TorchvisionSet(
        "STL10", {"train": {"split": "train"}, "test": {"split": "test"}}, "stl10_binary", ("stl10_binary.tar.gz",)
    ),
}


def _torchvision(name: str, root: Path) -> Source:
    """The fingerprint is that of the files as they lie unpacked, so they are downloaded first where they must be."""
    folder = root / _TORCHVISION[name].folder
    halves = None if folder.is_dir() else _open_torchvision(name, root)
    digest = hashlib.sha256(str(root.resolve()).encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            stat = path.stat()
            digest.update(f"{path.relative_to(folder)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    fingerprint = f"torchvision {name} {digest.hexdigest()}"
    return Source(10, fingerprint, lambda: halves or _open_torchvision(name, root))


def _open_torchvision(name: str, root: Path) -> tuple[Samples, Samples]:
    from torchvision import datasets

    spec = _TORCHVISION[name]
    make = getattr(datasets, spec.class_name)
    # One rank of a machine downloads; the others wait, and then find the files in place. The lock is not among the
    # data, which may lie on a disk that cannot be written to.
    locks = cache_root() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with FileLock(str(locks / f"{name}-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]}.lock")):
        try:
            halves = [make(str(root), **spec.splits[split]) for split in ("train", "test")]
        except RuntimeError:  # torchvision's word for "not found or corrupted"
            try:
                halves = [make(str(root), **spec.splits[split], download=True) for split in ("train", "test")]
            except (OSError, RuntimeError) as error:
                expected = ", ".join(str(root / file) for file in spec.files)
                reason = " ".join(str(error).split())
                raise DataError(
                    f"dataset={name} is not in {root} and cannot be downloaded ({reason}); "
                    f"put there yourself: {expected}, or name another folder with data_dir."
                ) from error
    return halves[0], halves[1]


# --- the user's own ---------------------------------------------------------------------------------------------


def _own_function(name: str) -> Callable[..., Samples]:
    if not is_reference(name):
        raise UnknownNameError(
            f"dataset={name} is unknown; choose from {', '.join(DATASETS)}, or module:function of your own."
        )
    return import_function(name, flag="dataset")


def _own(name: str, data_dir: str | None) -> Source:
    """The user's function, called with `split` and, where it names it, `data_dir`; it returns a map-style data set."""
    function = _own_function(name)
    offered = {"data_dir": data_dir} if "data_dir" in inspect.signature(function).parameters else {}
    halves: list[Samples] = []
    for split in ("train", "test"):
        try:
            half = function(split, **offered)
        except Exception as error:
            raise UserCodeError(f"dataset={name}: your function failed: {type(error).__name__}: {error}.") from error
        if not (hasattr(half, "__len__") and hasattr(half, "__getitem__")):
            raise UserCodeError(
                f"dataset={name}: your function returned {type(half).__name__}; return a map-style data set: "
                "len() and [index] -> (image, label)."
            )
        if not len(half):
            raise DataError(f"dataset={name}: the {split} split is empty.")
        halves.append(half)
    try:
        digest = _spot_check(function, halves)
    except Exception as error:
        raise _failed_data_set(name, error) from error
    return Source(lambda: _count_classes(name, halves), f"own {name} {digest}", lambda: (halves[0], halves[1]))


def _count_classes(name: str, halves: list[Samples]) -> int:
    """What the data set says under `classes`, a number or a list; else the largest label and one."""
    told = getattr(halves[0], "classes", None)
    if told is not None:
        return told if isinstance(told, int) else len(told)
    try:
        return 1 + max(int(half[index][1]) for half in halves for index in range(len(half)))
    except Exception as error:
        raise _failed_data_set(name, error) from error


def _failed_data_set(name: str, error: Exception) -> UserCodeError:
    return UserCodeError(f"dataset={name}: your data set failed: {type(error).__name__}: {error}.")


def _spot_check(function: Callable[..., object], halves: list[Samples]) -> str:
    """A digest of the function's module and of 16 samples a split: what they say cannot be seen from a name."""
    source = inspect.getsourcefile(inspect.unwrap(function))  # it may be decorated, with functools.cache say
    digest = hashlib.sha256(Path(source).read_bytes() if source and Path(source).exists() else b"")
    for half in halves:
        digest.update(str(len(half)).encode())
        for index in np.unique(np.linspace(0, len(half) - 1, 16).astype(int)):
            image, label = half[int(index)]
            digest.update(np.ascontiguousarray(image).tobytes() + str(int(label)).encode())
    return digest.hexdigest()
