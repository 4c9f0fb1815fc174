"""Built-in data sets, one file each: `datasets/<name>.py` defines `DATASET`. A new file is a new data set."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from dmls_ray.util.errors import DataError

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
    ) -> None:
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
        return [str(name) for name in names]

    @functools.cached_property
    def halves(self) -> tuple[Samples, Samples]:
        """The training and the test samples.

        Raises:
            DataError: they are missing and cannot be downloaded, or cannot be read.
        """
        return self._open_halves()


@dataclass(frozen=True)
class DatasetSpec:
    """A built-in data set: what its file assigns to `DATASET`."""

    open: Callable[[str, str | None], Source]
    """Takes name and data_dir; downloads the files if they are missing."""
    train_samples: Callable[[str], int | None]
    """Number of training samples by name, for estimates; None if it depends on the files."""
    check: Callable[[str, str | None], object] = lambda name, data_dir: None
    """Refuses wrong options or folders, without decoding or downloading."""
    has_options: bool = False
    """Whether the name may be followed by a colon and options."""
    has_user_files: bool = False
    """Whether its files are the user's. Else the name fixes the content, as of a data set that is downloaded and whose
    checksum torchvision compares."""


DATASET_NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""Names of the built-in data sets."""


def builtin_dataset(name: str) -> DatasetSpec | None:
    """The built-in data set of a name with or without options; None if there is none."""
    kind, colon, _ = name.partition(":")
    if kind not in DATASET_NAMES:
        return None
    spec: DatasetSpec = importlib.import_module(f"{__name__}.{kind}").DATASET
    return spec if spec.has_options or not colon else None
