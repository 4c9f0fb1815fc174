"""scikit-learn's 1,797 handwritten digits of 8x8 pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dmls_ray.workloads.classification.data.source import DatasetSpec, Samples, Source


class _Arrays:
    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self._images, self._labels = images, labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        return self._images[index], int(self._labels[index])


def _open_halves() -> tuple[Samples, Samples]:
    """The values 0 to 16 are stretched to 0 to 255; every fifth sample is a test sample.

    The file is sorted by writer, so a single cut would test on writers that were not trained on.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    test = np.arange(len(labels)) % 5 == 4
    return _Arrays(images[~test], labels[~test]), _Arrays(images[test], labels[test])


DATASET = DatasetSpec(
    open=lambda name, data_dir: Source(10, "digits 1", _open_halves),
    train_samples=lambda name: 1438,
)
