"""Fashion-MNIST: 60,000 training images of 28x28 pixels in grey."""

from __future__ import annotations

from dmls_ray.workloads.classification.data.torchvision_dataset import MNIST_FILES, torchvision_dataset

DATASET = torchvision_dataset(
    "FashionMNIST",
    train_samples=60_000,
    folder="FashionMNIST/raw",
    files=[f"FashionMNIST/raw/{file}" for file in MNIST_FILES],
)
