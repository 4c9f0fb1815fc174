"""scikit-learn's 1,797 handwritten digits of 8x8 pixels."""

from __future__ import annotations

import numpy as np

from dmls_ray.workloads.classification.datasets import DatasetSpec, Samples, Source


def _open_halves() -> tuple[Samples, Samples]:
    """The values 0 to 16 are stretched to 0 to 255; every fifth sample is a test sample.

    The file is sorted by writer, so a single cut would test on writers that were not trained on.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    samples = list(zip(images, bunch.target.tolist(), strict=True))
    test = samples[4::5]
    del samples[4::5]
    return samples, test


DATASET = DatasetSpec(
    open=lambda name, data_dir: Source(10, "digits 1", _open_halves),
    train_samples=lambda name: 1438,
)
