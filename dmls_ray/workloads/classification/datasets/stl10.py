"""STL-10: 5,000 training images of 96x96 pixels in colour."""

from __future__ import annotations

from dmls_ray.workloads.classification.data.torchvision_dataset import torchvision_dataset

DATASET = torchvision_dataset(
    "STL10",
    train_samples=5_000,
    folder="stl10_binary",
    files=("stl10_binary.tar.gz",),
    unread=("unlabeled_X.bin",),
    splits={"train": {"split": "train"}, "test": {"split": "test"}},
)
