"""CIFAR-10: 50,000 training images of 32x32 pixels in colour."""

from __future__ import annotations

from dmls_ray.workloads.classification.data.torchvision_dataset import torchvision_dataset

DATASET = torchvision_dataset(
    "CIFAR10",
    train_samples=50_000,
    folder="cifar-10-batches-py",
    files=("cifar-10-python.tar.gz",),
)
